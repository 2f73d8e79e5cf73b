//! Python tasks about whole lists, pairs of lists, matrices, tuples and dictionaries.

use super::code::{Task, boolean, ints, over_list};
use super::words::Choose;
use streams::StreamRng;

/// Functions of one list of integers (two lists in a few).
#[rustfmt::skip] // a table: one function per line
pub(super) fn list(r: &mut StreamRng) -> Task {
    let k = r.within(2, 4);
    let n = k as usize;
    let wide = (1, 60);
    match r.below(32) {
        0 => over_list(r, wide, (format!("rotate a list to the left by {k} positions"), "rotate_left", &format!("    return @[{k}:] + @[:{k}]")), |v| ints(&[&v[n..], &v[..n]].concat())),
        1 => over_list(r, wide, (format!("rotate a list to the right by {k} positions"), "rotate_right", &format!("    return @[-{k}:] + @[:-{k}]")), |v| ints(&[&v[v.len() - n..], &v[..v.len() - n]].concat())),
        2 => over_list(r, wide, (format!("split a list into pieces of length {k}"), "chunk", &format!("    return [@[i:i + {k}] for i in range(0, len(@), {k})]")), |v| nested(v.chunks(n))),
        3 => over_list(r, wide, (format!("pick every {k}th element of a list beginning with the first"), "every_kth", &format!("    return @[::{k}]")), |v| ints(&v.iter().copied().step_by(n).collect::<Vec<_>>())),
        4 => over_list(r, wide, (format!("find the {k} largest elements of a list in descending order"), "top_k", &format!("    return sorted(@, reverse=True)[:{k}]")), |v| ints(&sorted(v).into_iter().rev().take(n).collect::<Vec<_>>())),
        5 => over_list(r, wide, (format!("find the sum of the {k} smallest elements of a list"), "sum_smallest", &format!("    return sum(sorted(@)[:{k}])")), |v| sorted(v)[..n].iter().sum::<i64>().to_string()),
        6 => over_list(r, wide, (format!("find the largest sum of {k} neighbouring elements"), "max_window", &format!("    best = sum(@[:{k}])\n    for i in range(1, len(@) - {k} + 1):\n        best = max(best, sum(@[i:i + {k}]))\n    return best")), |v| v.windows(n).map(|w| w.iter().sum::<i64>()).max().unwrap_or(0).to_string()),
        7 => over_list(r, (1, 9), ("remove repeated values from a list and keep the first of each".into(), "unique", "    seen = []\n    for x in @:\n        if x not in seen:\n            seen.append(x)\n    return seen"), |v| ints(&unique(v))),
        8 => over_list(r, (1, 6), ("find the most frequent value of a list, the smallest one in a tie".into(), "most_frequent", "    return min(set(@), key=lambda x: (-@.count(x), x))"), |v| sorted(v).into_iter().min_by_key(|x| (std::cmp::Reverse(count(v, *x)), *x)).unwrap_or(0).to_string()),
        9 => over_list(r, wide, ("compute the running totals of a list".into(), "running_totals", "    totals = []\n    total = 0\n    for x in @:\n        total += x\n        totals.append(total)\n    return totals"), |v| ints(&scan(v))),
        10 => over_list(r, wide, ("find the difference between the largest and the smallest element".into(), "spread", "    return max(@) - min(@)"), |v| (sorted(v)[v.len() - 1] - sorted(v)[0]).to_string()),
        11 => over_list(r, wide, ("find the second largest distinct value of a list".into(), "second_largest", "    return sorted(set(@))[-2]"), |v| second_largest(v).to_string()),
        12 => over_list(r, wide, ("compute the differences of consecutive elements".into(), "differences", "    return [b - a for a, b in zip(@, @[1:])]"), |v| ints(&v.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>())),
        13 => over_list(r, wide, ("swap the first and the last element of a list".into(), "swap_ends", "    result = list(@)\n    result[0], result[-1] = result[-1], result[0]\n    return result"), |v| {
            let mut v = v.to_vec();
            let end = v.len() - 1;
            v.swap(0, end);
            ints(&v)
        }),
        14 => over_list(r, (1, 30), ("check whether a list is sorted in ascending order".into(), "is_sorted", "    return all(a <= b for a, b in zip(@, @[1:]))"), |v| boolean(v.is_sorted())),
        15 => over_list(r, (1, 9), ("check whether a list contains a value more than once".into(), "has_duplicates", "    return len(set(@)) != len(@)"), |v| boolean(unique(v).len() != v.len())),
        16 => over_list(r, wide, ("put all even numbers of a list before the odd ones without changing their order".into(), "even_first", "    return [x for x in @ if x % 2 == 0] + [x for x in @ if x % 2]"), |v| {
            let (e, o): (Vec<i64>, Vec<i64>) = v.iter().partition(|&x| x % 2 == 0);
            ints(&[e, o].concat())
        }),
        17 => over_list(r, wide, ("count how many elements are larger than the one before them".into(), "count_rises", "    return sum(1 for a, b in zip(@, @[1:]) if b > a)"), |v| v.windows(2).filter(|w| w[1] > w[0]).count().to_string()),
        18 => over_list(r, (-20, 20), ("find the largest sum of a contiguous part of a list".into(), "max_subarray", "    best = current = @[0]\n    for x in @[1:]:\n        current = max(x, current + x)\n        best = max(best, current)\n    return best"), |v| best_part(v).to_string()),
        19 => over_list(r, (-15, 15), ("move all negative numbers to the end of a list".into(), "negatives_last", "    return [x for x in @ if x >= 0] + [x for x in @ if x < 0]"), |v| {
            let (p, n): (Vec<i64>, Vec<i64>) = v.iter().partition(|&&x| x >= 0);
            ints(&[p, n].concat())
        }),
        20 => over_list(r, (-12, 12), ("sort a list by absolute value".into(), "sort_absolute", "    return sorted(@, key=abs)"), |v| {
            let mut v = v.to_vec();
            v.sort_by_key(|x| x.abs());
            ints(&v)
        }),
        21 => over_list(r, (0, 3), ("move the zeros of a list to its end".into(), "zeros_last", "    rest = [x for x in @ if x != 0]\n    return rest + [0] * (len(@) - len(rest))"), |v| {
            let (rest, zeros): (Vec<i64>, Vec<i64>) = v.iter().partition(|&&x| x != 0);
            ints(&[rest, zeros].concat())
        }),
        22 => over_list(r, wide, ("find the position of the largest element of a list".into(), "index_of_max", "    return @.index(max(@))"), |v| v.iter().position(|x| Some(x) == v.iter().max()).unwrap_or(0).to_string()),
        23 => over_list(r, wide, (format!("multiply every element of a list by {} and subtract {k}", k + 3), "scale_shift", &format!("    return [{} * x - {k} for x in @]", k + 3)), |v| ints(&v.iter().map(|x| (k + 3) * x - k).collect::<Vec<_>>())),
        24 => over_list(r, wide, (format!("reverse the first {k} elements of a list"), "reverse_prefix", &format!("    return @[:{k}][::-1] + @[{k}:]")), |v| {
            let mut v = v.to_vec();
            v[..n].reverse();
            ints(&v)
        }),
        25 => over_list(r, (1, 12), (format!("count the pairs of positions whose values add up to {}", k * 5), "count_pairs", &format!("    count = 0\n    for i in range(len(@)):\n        for j in range(i + 1, len(@)):\n            if @[i] + @[j] == {}:\n                count += 1\n    return count", k * 5)), |v| pairs(v, k * 5).to_string()),
        26 => pair(r, "find the values that two lists have in common, in ascending order", "common_values", "    return sorted(set(a) & set(b))", |a, b| ints(&sorted(&unique(a)).into_iter().filter(|x| b.contains(x)).collect::<Vec<_>>())),
        27 => pair(r, "merge two lists into one sorted list", "merge_sorted", "    return sorted(a + b)", |a, b| ints(&sorted(&[a, b].concat()))),
        28 => pair(r, "find the elements of the first list that are missing in the second", "missing_in_second", "    return [x for x in a if x not in b]", |a, b| ints(&a.iter().copied().filter(|x| !b.contains(x)).collect::<Vec<_>>())),
        29 => pair(r, "add two lists of equal length element by element", "add_lists", "    return [x + y for x, y in zip(a, b)]", |a, b| ints(&a.iter().zip(b).map(|(x, y)| x + y).collect::<Vec<_>>())),
        30 => pair(r, "compute the scalar product of two lists", "dot_product", "    total = 0\n    for x, y in zip(a, b):\n        total += x * y\n    return total", |a, b| a.iter().zip(b).map(|(x, y)| x * y).sum::<i64>().to_string()),
        _ => pair(r, "interleave two lists of equal length", "interleave", "    result = []\n    for x, y in zip(a, b):\n        result.append(x)\n        result.append(y)\n    return result", |a, b| ints(&a.iter().zip(b).flat_map(|(x, y)| [*x, *y]).collect::<Vec<_>>())),
    }
}

/// Functions of matrices, lists of tuples and dictionaries.
#[rustfmt::skip] // a table: one function per line
pub(super) fn structured(r: &mut StreamRng) -> Task {
    let k = r.within(5, 20);
    match r.below(22) {
        0 => matrix(r, "find the sum of each row of a matrix", "row_sums", "    return [sum(row) for row in @]", |m| ints(&m.iter().map(|row| row.iter().sum()).collect::<Vec<_>>())),
        1 => matrix(r, "find the sum of each column of a matrix", "column_sums", "    return [sum(column) for column in zip(*@)]", |m| ints(&transposed(m).iter().map(|c| c.iter().sum()).collect::<Vec<_>>())),
        2 => matrix(r, "transpose a matrix given as a list of rows", "transpose", "    return [list(column) for column in zip(*@)]", |m| nested(transposed(m).iter().map(Vec::as_slice))),
        3 => matrix(r, "find the sum of the main diagonal of a square matrix", "diagonal_sum", "    return sum(@[i][i] for i in range(len(@)))", |m| (0..m.len()).map(|i| m[i][i]).sum::<i64>().to_string()),
        4 => matrix(r, "find the largest value of a matrix", "matrix_max", "    return max(max(row) for row in @)", |m| m.concat().into_iter().max().unwrap_or(0).to_string()),
        5 => matrix(r, "flatten a matrix into one list", "flatten", "    return [x for row in @ for x in row]", |m| ints(&m.concat())),
        6 => matrix(r, "reverse every row of a matrix", "mirror_rows", "    return [row[::-1] for row in @]", |m| {
            let m: Vec<Vec<i64>> = m.iter().map(|row| row.iter().rev().copied().collect()).collect();
            nested(m.iter().map(Vec::as_slice))
        }),
        7 => matrix(r, "sort the rows of a matrix by their sums", "sort_rows", "    return sorted(@, key=sum)", |m| {
            let mut m = m.to_vec();
            m.sort_by_key(|row| row.iter().sum::<i64>());
            nested(m.iter().map(Vec::as_slice))
        }),
        8 => matrix(r, "find the index of the row with the largest sum", "heaviest_row", "    sums = [sum(row) for row in @]\n    return sums.index(max(sums))", |m| {
            let sums: Vec<i64> = m.iter().map(|row| row.iter().sum()).collect();
            sums.iter().position(|s| Some(s) == sums.iter().max()).unwrap_or(0).to_string()
        }),
        9 => pairs_task(r, "sort a list of tuples by their second element", "sort_by_second", "    return sorted(@, key=lambda t: t[1])", |v| {
            let mut v = v.to_vec();
            v.sort_by_key(|t| t.1);
            tuples(&v)
        }),
        10 => pairs_task(r, "extract the first element of every tuple in a list", "first_elements", "    return [t[0] for t in @]", |v| ints(&v.iter().map(|t| t.0).collect::<Vec<_>>())),
        11 => pairs_task(r, "swap the elements of every pair in a list of tuples", "swap_pairs", "    return [(b, a) for a, b in @]", |v| tuples(&v.iter().map(|t| (t.1, t.0)).collect::<Vec<_>>())),
        12 => pairs_task(r, "find the largest product of the two elements of a pair in a list", "largest_product", "    return max(a * b for a, b in @)", |v| v.iter().map(|t| t.0 * t.1).max().unwrap_or(0).to_string()),
        13 => pairs_task(r, "count the pairs whose first element is smaller than the second", "count_ascending", "    return sum(1 for a, b in @ if a < b)", |v| v.iter().filter(|t| t.0 < t.1).count().to_string()),
        14 => pairs_task(r, &format!("keep the tuples whose elements add up to more than {k}"), "heavy_tuples", &format!("    return [t for t in @ if sum(t) > {k}]"), |v| tuples(&v.iter().copied().filter(|t| t.0 + t.1 > k).collect::<Vec<_>>())),
        15 => pairs_task(r, "add up the tuples of a list element by element", "sum_tuples", "    return (sum(a for a, b in @), sum(b for a, b in @))", |v| format!("({}, {})", v.iter().map(|t| t.0).sum::<i64>(), v.iter().map(|t| t.1).sum::<i64>())),
        16 => dict(r, "find the key with the largest value in a dictionary", "key_of_max", "    return max(@, key=@.get)", |d| format!("'{}'", d.iter().max_by_key(|e| e.1).map_or("", |e| e.0))),
        17 => dict(r, "find the sum of all values of a dictionary", "sum_values", "    return sum(@.values())", |d| d.iter().map(|e| e.1).sum::<i64>().to_string()),
        18 => dict(r, &format!("keep the entries of a dictionary whose values exceed {k}"), "filter_values", &format!("    return {{key: v for key, v in @.items() if v > {k}}}"), |d| entries(&d.iter().copied().filter(|e| e.1 > k).collect::<Vec<_>>())),
        19 => dict(r, "list the keys of a dictionary ordered by their values", "keys_by_value", "    return sorted(@, key=@.get)", |d| {
            let mut d = d.to_vec();
            d.sort_by_key(|e| e.1);
            super::code::strings(&d.iter().map(|e| e.0).collect::<Vec<_>>())
        }),
        20 => dict(r, "swap the keys and the values of a dictionary", "invert", "    return {v: key for key, v in @.items()}", |d| format!("{{{}}}", d.iter().map(|e| format!("{}: '{}'", e.1, e.0)).collect::<Vec<_>>().join(", "))),
        _ => dict(r, "double every value of a dictionary", "double_values", "    return {key: 2 * v for key, v in @.items()}", |d| entries(&d.iter().map(|e| (e.0, 2 * e.1)).collect::<Vec<_>>())),
    }
}

fn pair(
    r: &mut StreamRng,
    goal: &str,
    name: &str,
    body: &str,
    f: impl Fn(&[i64], &[i64]) -> String,
) -> Task {
    let mut cases = Vec::new();
    for _ in 0..3 {
        let n = r.within(3, 6);
        let a: Vec<i64> = (0..n).map(|_| r.within(1, 15)).collect();
        let b: Vec<i64> = (0..n).map(|_| r.within(1, 15)).collect();
        cases.push((format!("{}, {}", ints(&a), ints(&b)), f(&a, &b)));
    }
    Task {
        goal: goal.to_owned(),
        name: name.to_owned(),
        params: vec!["a".to_owned(), "b".to_owned()],
        body: body.to_owned(),
        cases,
    }
}

fn matrix(
    r: &mut StreamRng,
    goal: &str,
    name: &str,
    body: &str,
    f: impl Fn(&[Vec<i64>]) -> String,
) -> Task {
    let mut cases = Vec::new();
    for _ in 0..3 {
        let n = r.within(2, 3);
        let m: Vec<Vec<i64>> = (0..n)
            .map(|_| (0..n).map(|_| r.within(1, 30)).collect())
            .collect();
        cases.push((nested(m.iter().map(Vec::as_slice)), f(&m)));
    }
    simple(
        r.pick(&["matrix", "grid", "rows", "table"]),
        goal,
        name,
        body,
        cases,
    )
}

fn pairs_task(
    r: &mut StreamRng,
    goal: &str,
    name: &str,
    body: &str,
    f: impl Fn(&[(i64, i64)]) -> String,
) -> Task {
    let mut cases = Vec::new();
    for _ in 0..3 {
        let n = r.within(3, 4);
        let v: Vec<(i64, i64)> = (0..n).map(|_| (r.within(1, 20), r.within(1, 20))).collect();
        cases.push((tuples(&v), f(&v)));
    }
    simple(
        r.pick(&["pairs", "tuples", "points", "records"]),
        goal,
        name,
        body,
        cases,
    )
}

fn dict(
    r: &mut StreamRng,
    goal: &str,
    name: &str,
    body: &str,
    f: impl Fn(&[(&str, i64)]) -> String,
) -> Task {
    const KEYS: [&str; 16] = [
        "tea", "rice", "salt", "oats", "plum", "kiwi", "leek", "corn", "mint", "sage", "bean",
        "pear", "lime", "date", "nut", "fig",
    ];
    let mut cases = Vec::new();
    for _ in 0..3 {
        let keys = r.sample(&KEYS, 4);
        let mut numbers: Vec<i64> = (1..=30).collect();
        r.shuffle(&mut numbers);
        // Distinct values: no order or inversion is ambiguous.
        let d: Vec<(&str, i64)> = keys.into_iter().zip(numbers).collect();
        cases.push((entries(&d), f(&d)));
    }
    simple(
        r.pick(&["stock", "prices", "counts", "table"]),
        goal,
        name,
        body,
        cases,
    )
}

fn simple(param: &str, goal: &str, name: &str, body: &str, cases: Vec<(String, String)>) -> Task {
    Task {
        goal: goal.to_owned(),
        name: name.to_owned(),
        params: vec![param.to_owned()],
        body: body.to_owned(),
        cases,
    }
}

fn nested<'a>(rows: impl Iterator<Item = &'a [i64]>) -> String {
    format!("[{}]", rows.map(ints).collect::<Vec<_>>().join(", "))
}

fn tuples(v: &[(i64, i64)]) -> String {
    format!(
        "[{}]",
        v.iter()
            .map(|t| format!("({}, {})", t.0, t.1))
            .collect::<Vec<_>>()
            .join(", ")
    )
}

fn entries(d: &[(&str, i64)]) -> String {
    format!(
        "{{{}}}",
        d.iter()
            .map(|e| format!("'{}': {}", e.0, e.1))
            .collect::<Vec<_>>()
            .join(", ")
    )
}

fn sorted(v: &[i64]) -> Vec<i64> {
    let mut v = v.to_vec();
    v.sort_unstable();
    v
}

fn unique(v: &[i64]) -> Vec<i64> {
    let mut seen = Vec::new();
    for x in v {
        if !seen.contains(x) {
            seen.push(*x);
        }
    }
    seen
}

fn count(v: &[i64], x: i64) -> usize {
    v.iter().filter(|&&y| y == x).count()
}

fn scan(v: &[i64]) -> Vec<i64> {
    let mut total = 0;
    v.iter()
        .map(|x| {
            total += x;
            total
        })
        .collect()
}

/// The largest value but one; a list of equal values would have none, so it is its own.
fn second_largest(v: &[i64]) -> i64 {
    sorted(&unique(v)).into_iter().rev().nth(1).unwrap_or(v[0])
}

fn best_part(v: &[i64]) -> i64 {
    (0..v.len())
        .flat_map(|i| (i + 1..=v.len()).map(move |j| (i, j)))
        .map(|(i, j)| v[i..j].iter().sum())
        .max()
        .unwrap_or(0)
}

fn pairs(v: &[i64], sum: i64) -> usize {
    (0..v.len())
        .map(|i| v[i + 1..].iter().filter(|&&y| v[i] + y == sum).count())
        .sum()
}

fn transposed(m: &[Vec<i64>]) -> Vec<Vec<i64>> {
    (0..m.first().map_or(0, Vec::len))
        .map(|c| m.iter().map(|row| row[c]).collect())
        .collect()
}
