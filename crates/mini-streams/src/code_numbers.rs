//! Python tasks about numbers: what to do with the members of a list that meet a condition, and scalar formulas.

use super::code::{Task, boolean, ints, list_name};
use super::words::Choose;
use streams::StreamRng;

/// A condition on an integer, in words, in Python (on `x`) and in Rust.
struct Condition {
    words: String,
    name: &'static str,
    python: String,
    holds: fn(i64, i64) -> bool,
    k: i64,
}

fn condition(r: &mut StreamRng) -> Condition {
    let make = |words: String, name, python: String, holds, k| Condition {
        words,
        name,
        python,
        holds,
        k,
    };
    match r.below(14) {
        0 => make(
            "even".into(),
            "even",
            "x % 2 == 0".into(),
            |x, _| x % 2 == 0,
            0,
        ),
        1 => make(
            "odd".into(),
            "odd",
            "x % 2 == 1".into(),
            |x, _| x % 2 == 1,
            0,
        ),
        2 => {
            let k = r.within(3, 9);
            make(
                format!("divisible by {k}"),
                "multiples",
                format!("x % {k} == 0"),
                |x, k| x % k == 0,
                k,
            )
        }
        3 => {
            let k = r.within(3, 6);
            make(
                format!("not divisible by {k}"),
                "non_multiples",
                format!("x % {k} != 0"),
                |x, k| x % k != 0,
                k,
            )
        }
        4 => {
            let k = r.within(10, 40);
            make(
                format!("greater than {k}"),
                "large",
                format!("x > {k}"),
                |x, k| x > k,
                k,
            )
        }
        5 => {
            let k = r.within(15, 45);
            make(
                format!("smaller than {k}"),
                "small",
                format!("x < {k}"),
                |x, k| x < k,
                k,
            )
        }
        6 => {
            let k = r.within(1, 4) * 10;
            let python = format!("{k} <= x <= {}", k + 15);
            make(
                format!("between {k} and {} inclusive", k + 15),
                "in_range",
                python,
                |x, k| (k..=k + 15).contains(&x),
                k,
            )
        }
        7 => make(
            "perfect squares".into(),
            "square",
            "int(x ** 0.5) ** 2 == x".into(),
            |x, _| x.isqrt().pow(2) == x,
            0,
        ),
        8 => {
            let python = "x > 1 and all(x % d for d in range(2, x))".into();
            make(
                "prime".into(),
                "prime",
                python,
                |x, _| x > 1 && (2..x).all(|d| x % d != 0),
                0,
            )
        }
        9 => {
            let k = r.within(0, 9);
            make(
                format!("ending in the digit {k}"),
                "last_digit",
                format!("x % 10 == {k}"),
                |x, k| x % 10 == k,
                k,
            )
        }
        10 => make(
            "one-digit numbers".into(),
            "one_digit",
            "x < 10".into(),
            |x, _| x < 10,
            0,
        ),
        11 => {
            let python = "sum(int(c) for c in str(x)) % 2 == 0".into();
            make(
                "numbers with an even digit sum".into(),
                "even_digit_sum",
                python,
                |x, _| digit_sum(x) % 2 == 0,
                0,
            )
        }
        12 => {
            let python = "str(x) == str(x)[::-1]".into();
            make(
                "palindromes".into(),
                "palindrome",
                python,
                |x, _| x == reversed(x),
                0,
            )
        }
        _ => {
            let k = r.pick(&[24, 30, 36, 48, 60]);
            let python = format!("x > 0 and {k} % x == 0");
            make(
                format!("divisors of {k}"),
                "divisors",
                python,
                |x, k| x > 0 && k % x == 0,
                k,
            )
        }
    }
}

/// What to do with the members that meet the condition: goal, name, Python, expected value.
pub(super) fn filtered(r: &mut StreamRng) -> Task {
    let c = condition(r);
    let (list, p, w) = (
        r.pick(&["a list", "a given list", "an array", "a list of integers"]),
        &c.python,
        &c.words,
    );
    let comprehension = r.flip();
    let loop_over = |init: &str, action: &str, end: &str| {
        format!(
            "    result = {init}\n    for x in @:\n        if {p}:\n            {action}\n    return {end}"
        )
    };
    let short_or = |short: String, long: String| if comprehension { short } else { long };
    let keep =
        |xs: &[i64]| -> Vec<i64> { xs.iter().copied().filter(|&x| (c.holds)(x, c.k)).collect() };
    type Expect<'a> = Box<dyn Fn(&[i64]) -> String + 'a>;
    let (goal, verb, body, expect): (String, &str, String, Expect) = match r.below(11) {
        0 => (
            format!("find the sum of the numbers in {list} that are {w}"),
            "sum",
            short_or(
                format!("    return sum(x for x in @ if {p})"),
                loop_over("0", "result += x", "result"),
            ),
            Box::new(|xs| keep(xs).iter().sum::<i64>().to_string()),
        ),
        1 => (
            format!("count how many elements of {list} are {w}"),
            "count",
            short_or(
                format!("    return len([x for x in @ if {p}])"),
                loop_over("0", "result += 1", "result"),
            ),
            Box::new(|xs| keep(xs).len().to_string()),
        ),
        2 => (
            format!("extract the elements of {list} that are {w}"),
            "extract",
            short_or(
                format!("    return [x for x in @ if {p}]"),
                loop_over("[]", "result.append(x)", "result"),
            ),
            Box::new(|xs| ints(&keep(xs))),
        ),
        3 => (
            format!("remove the numbers that are {w} from {list}"),
            "remove",
            format!("    return [x for x in @ if not ({p})]"),
            Box::new(|xs| {
                ints(
                    &xs.iter()
                        .copied()
                        .filter(|&x| !(c.holds)(x, c.k))
                        .collect::<Vec<_>>(),
                )
            }),
        ),
        4 => (
            format!(
                "find the largest element of {list} among those that are {w}, or -1 if there is none"
            ),
            "largest",
            format!("    found = [x for x in @ if {p}]\n    return max(found) if found else -1"),
            Box::new(|xs| keep(xs).into_iter().max().unwrap_or(-1).to_string()),
        ),
        5 => (
            format!(
                "find the smallest element of {list} among those that are {w}, or -1 if there is none"
            ),
            "smallest",
            format!("    found = [x for x in @ if {p}]\n    return min(found) if found else -1"),
            Box::new(|xs| keep(xs).into_iter().min().unwrap_or(-1).to_string()),
        ),
        6 => (
            format!("square the members of {list} that are {w} and leave out the others"),
            "square_of",
            short_or(
                format!("    return [x * x for x in @ if {p}]"),
                loop_over("[]", "result.append(x ** 2)", "result"),
            ),
            Box::new(|xs| ints(&keep(xs).iter().map(|x| x * x).collect::<Vec<_>>())),
        ),
        7 => (
            format!("get the indices at which {list} holds values that are {w}"),
            "indices_of",
            format!("    return [i for i, x in enumerate(@) if {p}]"),
            Box::new(|xs| {
                let at = xs
                    .iter()
                    .enumerate()
                    .filter(|&(_, &x)| (c.holds)(x, c.k))
                    .map(|(i, _)| i as i64);
                ints(&at.collect::<Vec<_>>())
            }),
        ),
        8 => (
            format!("replace by zero the values of {list} that are {w}"),
            "zero_out",
            format!("    return [0 if {p} else x for x in @]"),
            Box::new(|xs| {
                ints(
                    &xs.iter()
                        .map(|&x| if (c.holds)(x, c.k) { 0 } else { x })
                        .collect::<Vec<_>>(),
                )
            }),
        ),
        9 => (
            format!("check whether all items of {list} are {w}"),
            "all",
            short_or(
                format!("    return all({p} for x in @)"),
                format!(
                    "    for x in @:\n        if not ({p}):\n            return False\n    return True"
                ),
            ),
            Box::new(|xs| boolean(keep(xs).len() == xs.len())),
        ),
        _ => (
            format!("split {list} into the values that are {w} and the remaining ones"),
            "split_by",
            format!(
                "    yes = [x for x in @ if {p}]\n    no = [x for x in @ if not ({p})]\n    return yes, no"
            ),
            Box::new(|xs| {
                let no: Vec<i64> = xs.iter().copied().filter(|&x| !(c.holds)(x, c.k)).collect();
                format!("({}, {})", ints(&keep(xs)), ints(&no))
            }),
        ),
    };
    let inputs: Vec<Vec<i64>> = (0..3).map(|case| input(r, &c, case)).collect();
    let cases = inputs.iter().map(|xs| (ints(xs), expect(xs))).collect();
    Task {
        goal,
        name: format!("{verb}_{}", c.name),
        params: vec![list_name(r)],
        body,
        cases,
    }
}

/// A list in which some numbers meet the condition; in the last case possibly all or none.
fn input(r: &mut StreamRng, c: &Condition, case: usize) -> Vec<i64> {
    let length = r.within(4, 7);
    (0..length)
        .map(|_| {
            let wanted = case == 2 || r.flip();
            (0..40)
                .map(|_| r.within(1, 64))
                .find(|&x| !wanted || (c.holds)(x, c.k))
                .unwrap_or(1)
        })
        .collect()
}

fn digit_sum(x: i64) -> i64 {
    x.to_string().bytes().map(|b| i64::from(b - b'0')).sum()
}

fn reversed(x: i64) -> i64 {
    x.to_string()
        .bytes()
        .rev()
        .fold(0, |n, b| n * 10 + i64::from(b - b'0'))
}

/// Functions of one or two integers.
#[rustfmt::skip] // a table: one function per line
pub(super) fn scalar(r: &mut StreamRng) -> Task {
    let (a, b) = (r.within(2, 9), r.within(1, 12));
    match r.below(26) {
        0 => one(r, format!("find the nth term of the sequence that starts at {b} and grows by {a}"), "nth_term", &format!("    return {b} + (@ - 1) * {a}"), (1, 30), |n| (b + (n - 1) * a).to_string()),
        1 => one(r, "find the sum of the squares of the first n natural numbers".into(), "sum_of_squares", "    return sum(i * i for i in range(1, @ + 1))", (3, 25), |n| (1..=n).map(|i| i * i).sum::<i64>().to_string()),
        2 => one(r, "find the sum of the cubes of the first n odd numbers".into(), "odd_cubes", "    total = 0\n    for i in range(@):\n        total += (2 * i + 1) ** 3\n    return total", (2, 12), |n| (0..n).map(|i| (2 * i + 1).pow(3)).sum::<i64>().to_string()),
        3 => one(r, "reverse the digits of a positive integer".into(), "reverse_digits", "    return int(str(@)[::-1])", (12, 9876), |n| reversed(n).to_string()),
        4 => one(r, "multiply the digits of a number".into(), "digit_product", "    product = 1\n    for c in str(@):\n        product *= int(c)\n    return product", (11, 9999), |n| n.to_string().bytes().map(|b| i64::from(b - b'0')).product::<i64>().to_string()),
        5 => one(r, "add the digits of a number until one digit is left".into(), "digital_root", "    while @ > 9:\n        @ = sum(int(c) for c in str(@))\n    return @", (10, 99999), |n| (1 + (n - 1) % 9).to_string()),
        6 => one(r, "count the divisors of a positive integer".into(), "count_divisors", "    return sum(1 for d in range(1, @ + 1) if @ % d == 0)", (2, 120), |n| (1..=n).filter(|d| n % d == 0).count().to_string()),
        7 => one(r, "check whether a number is prime".into(), "is_prime", "    if @ < 2:\n        return False\n    for d in range(2, int(@ ** 0.5) + 1):\n        if @ % d == 0:\n            return False\n    return True", (2, 199), |n| boolean((2..n).all(|d| n % d != 0))),
        8 => one(r, "find the number of ones in the binary form of an integer".into(), "count_ones", "    return bin(@).count('1')", (3, 1000), |n| n.count_ones().to_string()),
        9 => one(r, format!("convert a number to a string in base {}", a.max(3)), "to_base", &format!("    digits = ''\n    while @ > 0:\n        digits = str(@ % {0}) + digits\n        @ //= {0}\n    return digits", a.max(3)), (10, 900), |n| format!("'{}'", in_base(n, a.max(3)))),
        10 => one(r, "find the smallest power of two that is not below n".into(), "next_power", "    power = 1\n    while power < @:\n        power *= 2\n    return power", (3, 3000), |n| (n as u64).next_power_of_two().to_string()),
        11 => one(r, "list the first n even numbers starting from two".into(), "first_evens", "    return [2 * i for i in range(1, @ + 1)]", (2, 9), |n| ints(&(1..=n).map(|i| 2 * i).collect::<Vec<_>>())),
        12 => one(r, "find the number of steps of the Collatz rule until one is reached".into(), "collatz_steps", "    steps = 0\n    while @ != 1:\n        @ = @ // 2 if @ % 2 == 0 else 3 * @ + 1\n        steps += 1\n    return steps", (2, 40), |n| collatz(n).to_string()),
        13 => one(r, "find the nth number of the Fibonacci sequence starting with 0 and 1".into(), "fibonacci", "    a, b = 0, 1\n    for _ in range(@):\n        a, b = b, a + b\n    return a", (3, 30), |n| sequence(n, (0, 1)).to_string()),
        14 => one(r, "find the nth number of the Lucas sequence starting with 2 and 1".into(), "lucas", "    if @ == 0:\n        return 2\n    a, b = 2, 1\n    for _ in range(@ - 1):\n        a, b = b, a + b\n    return b", (2, 25), |n| sequence(n, (2, 1)).to_string()),
        15 => two(r, "find the greatest common divisor of two numbers", "common_divisor", "    while b:\n        a, b = b, a % b\n    return a", |a, b| gcd(a, b).to_string()),
        16 => two(r, "find the least common multiple of two numbers", "common_multiple", "    multiple = a\n    while multiple % b:\n        multiple += a\n    return multiple", |a, b| (a / gcd(a, b) * b).to_string()),
        17 => two(r, "find the perimeter of a rectangle from its two sides", "rectangle_perimeter", "    return 2 * (a + b)", |a, b| (2 * (a + b)).to_string()),
        18 => two(r, "find the surface area of a box with a square base", "box_surface", "    return 2 * a * a + 4 * a * b", |a, b| (2 * a * a + 4 * a * b).to_string()),
        19 => two(r, "check whether two numbers have the same last digit", "same_last_digit", "    return a % 10 == b % 10", |a, b| boolean(a % 10 == b % 10)),
        20 => two(r, "check whether one of two numbers divides the other", "one_divides", "    return a % b == 0 or b % a == 0", |a, b| boolean(a % b == 0 || b % a == 0)),
        21 => two(r, "add all integers from the smaller to the larger of two numbers", "sum_between", "    low, high = min(a, b), max(a, b)\n    return sum(range(low, high + 1))", |a, b| (a.min(b)..=a.max(b)).sum::<i64>().to_string()),
        22 => two(r, "find the volume of a box with height a and a square base of side b", "box_volume", "    return a * b * b", |a, b| (a * b * b).to_string()),
        23 => one(r, "convert a number of minutes to hours and minutes".into(), "split_minutes", "    return @ // 60, @ % 60", (61, 900), |n| format!("({}, {})", n / 60, n % 60)),
        24 => one(r, "find the sum of all multiples of 3 or 5 below n".into(), "sum_multiples", "    return sum(i for i in range(@) if i % 3 == 0 or i % 5 == 0)", (10, 200), |n| (0..n).filter(|i| i % 3 == 0 || i % 5 == 0).sum::<i64>().to_string()),
        _ => one(r, format!("find the remainder when n to the power of {} is divided by {}", a.min(5), b + 5), "power_rest", &format!("    return @ ** {} % {}", a.min(5), b + 5), (2, 40), |n| (n.pow(a.min(5) as u32) % (b + 5)).to_string()),
    }
}

fn one(
    r: &mut StreamRng,
    goal: String,
    name: &str,
    body: &str,
    (low, high): (i64, i64),
    f: impl Fn(i64) -> String,
) -> Task {
    let cases = (0..3)
        .map(|_| r.within(low, high))
        .map(|n| (n.to_string(), f(n)))
        .collect();
    let parameter = r.pick(&["n", "num", "number", "value"]);
    Task {
        goal,
        name: name.to_owned(),
        params: vec![parameter.to_owned()],
        body: body.to_owned(),
        cases,
    }
}

fn two(
    r: &mut StreamRng,
    goal: &str,
    name: &str,
    body: &str,
    f: impl Fn(i64, i64) -> String,
) -> Task {
    let unit = r.pick(&[1, 2, 3, 4]);
    let cases = (0..3)
        .map(|_| (unit * r.within(2, 20), unit * r.within(1, 20)))
        .map(|(a, b)| (format!("{a}, {b}"), f(a, b)))
        .collect();
    let params = vec!["a".to_owned(), "b".to_owned()];
    Task {
        goal: goal.to_owned(),
        name: name.to_owned(),
        params,
        body: body.to_owned(),
        cases,
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn in_base(mut n: i64, base: i64) -> String {
    let mut digits = Vec::new();
    while n > 0 {
        digits.push((n % base).to_string());
        n /= base;
    }
    digits.reverse();
    digits.concat()
}

fn collatz(mut n: i64) -> usize {
    let mut steps = 0;
    while n != 1 {
        n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
        steps += 1;
    }
    steps
}

fn sequence(n: i64, (mut a, mut b): (i64, i64)) -> i64 {
    for _ in 0..n {
        (a, b) = (b, a + b);
    }
    a
}
