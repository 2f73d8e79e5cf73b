//! Word problems in GSM8K's format.
//!
//! Every number in a solution comes out of [`Work`], which computes what it annotates: a solution cannot contain a
//! wrong sum. Numbers are drawn so that divisions come out even.

use super::words::Choose;
use streams::StreamRng;

use super::{Draft, math_chain, math_more};

/// A solution under construction.
#[derive(Default)]
pub(super) struct Work {
    lines: Vec<String>,
}

/// An annotated calculation and its value.
pub(super) struct Step {
    /// `48 / 2 = <<48/2=24>>24`.
    pub text: String,
    /// The same with a dollar sign before the result.
    pub money: String,
    /// The result.
    pub value: i64,
}

/// Computes `terms[0] op terms[1] op ...` from the left. Divisions are exact by the caller's choice of numbers.
pub(super) fn calc(op: char, terms: &[i64]) -> Step {
    let apply = |a: i64, b: i64| match op {
        '+' => a + b,
        '-' => a - b,
        '*' => a * b,
        _ => a / b.max(1),
    };
    let value = terms.iter().copied().reduce(apply).unwrap_or_default();
    let join = |between: &str| {
        terms
            .iter()
            .map(i64::to_string)
            .collect::<Vec<_>>()
            .join(between)
    };
    let (spaced, tight) = (join(&format!(" {op} ")), join(&op.to_string()));
    Step {
        text: format!("{spaced} = <<{tight}={value}>>{value}"),
        money: format!("{spaced} = $<<{tight}={value}>>{value}"),
        value,
    }
}

impl Work {
    /// Adds a line.
    pub fn say(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// Ends the solution with GSM8K's answer line.
    pub fn answer(mut self, value: i64) -> String {
        self.lines.push(format!("#### {value}"));
        self.lines.join("\n")
    }
}

/// One problem: a chain of events one time in four, a template otherwise.
pub(super) fn draw(rng: &mut StreamRng) -> Draft {
    if rng.below(4) == 0 {
        return math_chain::draw(rng);
    }
    let templates: [fn(&mut StreamRng) -> Draft; 26] = [
        shopping,
        collection,
        wages,
        reading,
        baking,
        travel,
        orchard,
        saving,
        ages,
        discount,
        tank,
        legs,
        math_more::buses,
        math_more::recipe,
        math_more::tickets,
        math_more::sharing,
        math_more::laps,
        math_more::shelves,
        math_more::machines,
        math_more::phone,
        math_more::fence,
        math_more::paint,
        math_more::stall,
        math_more::scores,
        math_more::parking,
        math_more::feeding,
    ];
    rng.pick(&templates)(rng)
}

fn shopping(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let goods = r.sample(
        &[
            "notebooks",
            "mugs",
            "candles",
            "scarves",
            "lanterns",
            "paint sets",
            "kites",
            "baskets",
        ],
        2,
    );
    let (a, b) = (goods[0], goods[1]);
    let (n, m) = (r.within(2, 9), r.within(2, 7));
    let (x, y) = (r.within(3, 14), r.within(2, 12));
    let spent = n * x + m * y;
    let bill = (spent / 50 + 1) * 50;
    let place = r.pick(&[
        "the market",
        "a craft shop",
        "the corner store",
        "a flea market",
        "the museum shop",
    ]);
    let question = r.one([
        format!("{} buys {n} {a} for ${x} each and {m} {b} for ${y} each at {place}. If {} pays with ${bill}, how much change does {} get back?", p.name, p.they(), p.they()),
        format!("At {place}, {a} cost ${x} and {b} cost ${y}. {} takes {n} {a} and {m} {b} and hands the cashier ${bill}. How many dollars of change should {} receive?", p.name, p.they()),
        format!("{} went to {place} with ${bill}. {} bought {n} {a} at ${x} apiece as well as {m} {b} at ${y} apiece. How much money does {} have left?", p.name, p.they_cap(), p.they()),
    ]);
    let mut w = Work::default();
    let (first, second) = (calc('*', &[n, x]), calc('*', &[m, y]));
    w.say(format!("The {a} cost {}.", first.money));
    w.say(format!("The {b} cost {}.", second.money));
    let total = calc('+', &[first.value, second.value]);
    w.say(format!("Together that is {}.", total.money));
    let change = calc('-', &[bill, total.value]);
    w.say(format!("{} has {} left.", p.name, change.money));
    (question, w.answer(change.value))
}

fn collection(r: &mut StreamRng) -> Draft {
    let [p, q, s] = r.people();
    let thing = r.pick(&[
        "stamps",
        "seashells",
        "marbles",
        "postcards",
        "model trains",
        "comic books",
        "coins",
        "pressed flowers",
        "bottle caps",
    ]);
    let (k, x, d) = (r.within(2, 5), r.within(6, 40), r.within(3, 25));
    let times = if k == 2 {
        "twice".to_owned()
    } else {
        format!("{k} times")
    };
    let question = r.one([
        format!("{} owns {x} {thing}. {} owns {times} as many {thing} as {}, and {} owns {d} more than {}. How many {thing} do the three of them own altogether?", p.name, q.name, p.name, s.name, q.name),
        format!("Three friends collect {thing}. {} has {times} as many as {}, who has {x}. {} has {d} more than {}. What is the size of their combined collection?", q.name, p.name, s.name, q.name),
    ]);
    let mut w = Work::default();
    let qs = calc('*', &[k, x]);
    w.say(format!("{} has {} {thing}.", q.name, qs.text));
    let ss = calc('+', &[qs.value, d]);
    w.say(format!("{} has {} {thing}.", s.name, ss.text));
    let all = calc('+', &[x, qs.value, ss.value]);
    w.say(format!("In all they have {} {thing}.", all.text));
    (question, w.answer(all.value))
}

fn wages(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let job = r.pick(&[
        "tutoring",
        "walking dogs",
        "mowing lawns",
        "repairing bicycles",
        "washing windows",
        "teaching piano",
        "sorting mail",
    ]);
    let (rate, hours, days) = (r.within(8, 22), r.within(2, 7), r.within(3, 6));
    let cost = r.within(10, rate * hours * days / 2);
    let thing = r.pick(&[
        "a pair of boots",
        "a train ticket",
        "a birthday present",
        "a tent",
        "a set of books",
        "a helmet",
    ]);
    let question = r.one([
        format!("{} earns ${rate} an hour {job} and works {hours} hours a day, {days} days a week. After one week {} spends ${cost} on {thing}. How much of the week's earnings is left?", p.name, p.they()),
        format!("Last week {} spent {days} days {job}, {hours} hours each day, for ${rate} per hour. With the money {} bought {thing} for ${cost}. How many dollars did {} keep?", p.name, p.they(), p.they()),
    ]);
    let mut w = Work::default();
    let total_hours = calc('*', &[hours, days]);
    w.say(format!("{} worked {} hours.", p.name, total_hours.text));
    let earned = calc('*', &[total_hours.value, rate]);
    w.say(format!("{} earned {}.", p.they_cap(), earned.money));
    let left = calc('-', &[earned.value, cost]);
    w.say(format!(
        "After buying {thing}, {} has {}.",
        p.they(),
        left.money
    ));
    (question, w.answer(left.value))
}

fn reading(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (a, d, b, e) = (
        r.within(12, 35),
        r.within(2, 6),
        r.within(10, 30),
        r.within(2, 6),
    );
    let pages = a * d + b * e;
    let book = r.pick(&[
        "novel",
        "history book",
        "travel guide",
        "biography",
        "collection of fairy tales",
        "mystery",
    ]);
    let question = r.one([
        format!("{} is reading a {book} of {pages} pages. For the first {d} days {} reads {a} pages a day. {} wants to finish in {e} more days. How many pages must {} read on each of those days?", p.name, p.they(), p.they_cap(), p.they()),
        format!("A {book} has {pages} pages. {} managed {a} pages on each of {d} days and will divide what remains evenly over the next {e} days. How many pages a day will that be?", p.name),
    ]);
    let mut w = Work::default();
    let done = calc('*', &[a, d]);
    w.say(format!(
        "In the first {d} days {} reads {} pages.",
        p.name, done.text
    ));
    let rest = calc('-', &[pages, done.value]);
    w.say(format!("That leaves {} pages.", rest.text));
    let daily = calc('/', &[rest.value, e]);
    w.say(format!(
        "{} has to read {} pages a day.",
        p.they_cap(),
        daily.text
    ));
    (question, w.answer(daily.value))
}

fn baking(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let thing = r.pick(&[
        "cookies",
        "muffins",
        "scones",
        "pretzels",
        "dumplings",
        "almond biscuits",
    ]);
    let eater = r.pick(&["family", "neighbours", "brothers", "classmates"]);
    let (batches, size, box_size) = (
        r.within(3, 8),
        r.within(2, 5) * 6,
        r.pick(&[4, 5, 6, 8, 10]),
    );
    let total = batches * size;
    let boxes = (total - 4) / box_size;
    let eaten = total - boxes * box_size;
    let (eaten, boxes) = if eaten < 3 {
        (eaten + box_size, boxes - 1)
    } else {
        (eaten, boxes)
    };
    let question = r.one([
        format!("{} bakes {batches} trays of {size} {thing}. {} {eater} eat {eaten} of them, and the rest are packed in boxes of {box_size}. How many boxes does {} fill?", p.name, super::words::capitalized(p.their()), p.they()),
        format!("For a school fair {} made {batches} batches of {thing} with {size} in each batch. After {} {eater} had eaten {eaten}, {} put {box_size} {thing} into every box. How many boxes were there?", p.name, p.their(), p.they()),
    ]);
    let mut w = Work::default();
    let all = calc('*', &[batches, size]);
    w.say(format!("{} makes {} {thing}.", p.name, all.text));
    let rest = calc('-', &[all.value, eaten]);
    w.say(format!(
        "After the {eater} have eaten, {} {thing} are left.",
        rest.text
    ));
    let filled = calc('/', &[rest.value, box_size]);
    w.say(format!("They fill {} boxes.", filled.text));
    debug_assert_eq!(filled.value, boxes);
    (question, w.answer(filled.value))
}

fn travel(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (vehicle, fast, slow) = r.pick(&[
        ("drives", 90, 50),
        ("cycles", 24, 14),
        ("sails", 18, 9),
        ("rides a scooter", 40, 22),
        ("hikes", 6, 3),
    ]);
    let (v, u) = (r.within(slow, fast), r.within(slow, fast));
    let (h, g, rest) = (r.within(2, 5), r.within(2, 4), r.within(5, 40));
    let total = v * h + u * g + rest;
    let question = r.one([
        format!("{} {vehicle} for {h} hours at {v} kilometres per hour and then for {g} hours at {u} kilometres per hour. The whole route is {total} kilometres long. How many kilometres are still ahead?", p.name),
        format!("A trip of {total} kilometres lies before {}. {} {vehicle} at {v} km/h during the first {h} hours and at {u} km/h during the following {g} hours. How far from the end of the trip is {} then?", p.name, p.they_cap(), p.they()),
    ]);
    let mut w = Work::default();
    let (first, second) = (calc('*', &[v, h]), calc('*', &[u, g]));
    w.say(format!("The first part covers {} kilometres.", first.text));
    w.say(format!(
        "The second part covers {} kilometres.",
        second.text
    ));
    let done = calc('+', &[first.value, second.value]);
    w.say(format!("So far that makes {} kilometres.", done.text));
    let left = calc('-', &[total, done.value]);
    w.say(format!("There are {} kilometres ahead.", left.text));
    (question, w.answer(left.value))
}

fn orchard(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (plant, fruit) = r.pick(&[
        ("apple trees", "apples"),
        ("tomato plants", "tomatoes"),
        ("pepper plants", "peppers"),
        ("plum trees", "plums"),
        ("pumpkin vines", "pumpkins"),
        ("lemon trees", "lemons"),
    ]);
    let (k, each) = (r.within(3, 6), r.within(4, 20));
    let (rows, per) = (r.within(2, 6) * k, r.within(4, 9));
    let cause = r.pick(&["a frost", "a hailstorm", "a dry summer", "hungry deer"]);
    let question = r.one([
        format!("{} plants {rows} rows of {per} {plant}. One out of every {k} is lost to {cause}. Each of the others bears {each} {fruit}. How many {fruit} does {} harvest?", p.name, p.they()),
        format!("In {}'s garden there were {rows} rows with {per} {plant} each until {cause} destroyed 1/{k} of them. If every remaining one yields {each} {fruit}, how many {fruit} are picked?", p.name),
    ]);
    let mut w = Work::default();
    let all = calc('*', &[rows, per]);
    w.say(format!("There are {} {plant} at first.", all.text));
    let lost = calc('/', &[all.value, k]);
    w.say(format!("Of these {} are lost.", lost.text));
    let alive = calc('-', &[all.value, lost.value]);
    w.say(format!("So {} {plant} survive.", alive.text));
    let picked = calc('*', &[alive.value, each]);
    w.say(format!("They bear {} {fruit}.", picked.text));
    (question, w.answer(picked.value))
}

fn saving(r: &mut StreamRng) -> Draft {
    let [p, q] = r.people();
    let goal_name = r.pick(&[
        "a guitar",
        "a telescope",
        "a skateboard",
        "a camera",
        "a sewing machine",
        "a drum kit",
    ]);
    let (s, w_, gift) = (r.within(5, 20), r.within(4, 12), r.within(10, 40));
    let goal = s * w_ + gift + r.within(5, 60);
    let relative = r.pick(&["aunt", "uncle", "grandfather", "godmother", "cousin"]);
    let question = r.one([
        format!("{} wants to buy {goal_name} for ${goal}. {} puts aside ${s} a week for {w_} weeks, and {} {relative} {} adds ${gift}. How many dollars are still missing?", p.name, p.they_cap(), p.their(), q.name),
        format!("To pay for {goal_name}, which costs ${goal}, {} has saved ${s} every week for {w_} weeks. {}, {} {relative}, gave {} as a present. How much more money is needed?", p.name, q.name, p.their(), format_args!("${gift}")),
    ]);
    let mut w = Work::default();
    let saved = calc('*', &[s, w_]);
    w.say(format!("{} saved {}.", p.name, saved.money));
    let have = calc('+', &[saved.value, gift]);
    w.say(format!("With the present that is {}.", have.money));
    let need = calc('-', &[goal, have.value]);
    w.say(format!("{} still needs {}.", p.name, need.money));
    (question, w.answer(need.value))
}

fn ages(r: &mut StreamRng) -> Draft {
    let [p, q, s] = r.people();
    let (k, x, d, n) = (
        r.within(2, 4),
        r.within(4, 15),
        r.within(2, 7),
        r.within(3, 12),
    );
    let times = if k == 2 {
        "twice".to_owned()
    } else {
        format!("{k} times")
    };
    let question = r.one([
        format!("{} is {x} years old. {} is {times} as old as {}, and {} is {d} years younger than {}. What will the sum of their three ages be in {n} years?", p.name, q.name, p.name, s.name, q.name),
        format!("{} is {d} years younger than {}, who is {times} as old as {}. If {} is {x} now, how old will all three be together {n} years from now?", s.name, q.name, p.name, p.name),
    ]);
    let mut w = Work::default();
    let qa = calc('*', &[k, x]);
    w.say(format!("{} is {} years old.", q.name, qa.text));
    let sa = calc('-', &[qa.value, d]);
    w.say(format!("{} is {} years old.", s.name, sa.text));
    let now = calc('+', &[x, qa.value, sa.value]);
    w.say(format!("Today their ages add up to {}.", now.text));
    let gain = calc('*', &[3, n]);
    w.say(format!("In {n} years the three gain {} years.", gain.text));
    let then = calc('+', &[now.value, gain.value]);
    w.say(format!("The sum will be {}.", then.text));
    (question, w.answer(then.value))
}

fn discount(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let thing = r.pick(&[
        "jackets",
        "lamps",
        "rucksacks",
        "tea pots",
        "blankets",
        "headphones",
        "chairs",
    ]);
    let (price, n) = (r.within(2, 12) * 20, r.within(2, 6));
    let percent = r.pick(&[5, 10, 15, 20, 25, 30, 40]);
    let question = r.one([
        format!("A shop sells {thing} at ${price} each. During the sale the price is lowered by {percent}%. How much does {} pay for {n} {thing} in the sale?", p.name),
        format!("{} orders {n} {thing}. The usual price of one is ${price}, but today there is a discount of {percent} percent. What is the total of {} bill in dollars?", p.name, p.their()),
    ]);
    let mut w = Work::default();
    let off = price * percent / 100;
    w.say(format!(
        "The discount on one is {price} * {percent} / 100 = $<<{price}*{percent}/100={off}>>{off}."
    ));
    let new = calc('-', &[price, off]);
    w.say(format!("So one costs {}.", new.money));
    let total = calc('*', &[n, new.value]);
    w.say(format!("{n} {thing} cost {}.", total.money));
    (question, w.answer(total.value))
}

fn tank(r: &mut StreamRng) -> Draft {
    let (fill, leak) = (r.within(9, 24), r.within(2, 7));
    let (minutes, start) = (r.within(8, 40), r.within(10, 90));
    let capacity = start + (fill - leak) * minutes;
    let vessel = r.pick(&[
        "water tank",
        "fish pond",
        "swimming pool",
        "rain barrel",
        "fountain",
    ]);
    let question = r.one([
        format!("A {vessel} that holds {capacity} litres already contains {start} litres. A hose adds {fill} litres a minute while a crack lets {leak} litres a minute escape. After how many minutes is it full?"),
        format!("There are {start} litres in a {vessel} with room for {capacity} litres. Every minute {fill} litres flow in and {leak} litres leak out. How many minutes does it take until nothing more fits in?"),
    ]);
    let mut w = Work::default();
    let room = calc('-', &[capacity, start]);
    w.say(format!("There is room for {} more litres.", room.text));
    let net = calc('-', &[fill, leak]);
    w.say(format!(
        "Each minute the level rises by {} litres.",
        net.text
    ));
    let time = calc('/', &[room.value, net.value]);
    w.say(format!("It takes {} minutes.", time.text));
    (question, w.answer(time.value))
}

fn legs(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (a, la, b, lb) = r.pick(&[
        ("cows", 4, "geese", 2),
        ("goats", 4, "hens", 2),
        ("spiders", 8, "beetles", 6),
        ("stools", 3, "tables", 4),
        ("tricycles", 3, "bicycles", 2),
        ("dogs", 4, "parrots", 2),
    ]);
    let part = if a == "tricycles" { "wheels" } else { "legs" };
    let (n, m) = (r.within(3, 18), r.within(3, 24));
    let total = n * la + m * lb;
    let question = r.one([
        format!("{} counts {total} {part} among some {a} and {b}. There are {n} {a}, each with {la} {part}, and every one of the {b} has {lb}. How many {b} are there?", p.name),
        format!("A group of {a} and {b} has {total} {part} altogether. Each of the {n} {a} has {la} {part}; the {b} have {lb} each. How many {b} did {} see?", p.name),
    ]);
    let mut w = Work::default();
    let first = calc('*', &[n, la]);
    w.say(format!("The {a} have {} {part}.", first.text));
    let rest = calc('-', &[total, first.value]);
    w.say(format!("The {b} have {} {part}.", rest.text));
    let count = calc('/', &[rest.value, lb]);
    w.say(format!("So there are {} {b}.", count.text));
    (question, w.answer(count.value))
}
