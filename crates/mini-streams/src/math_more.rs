//! The second half of the word-problem templates.

use super::math::{Work, calc};
use super::words::Choose;
use streams::StreamRng;

use super::Draft;

pub(super) fn tickets(r: &mut StreamRng) -> Draft {
    let event = r.pick(&[
        "puppet show",
        "choir concert",
        "chess tournament",
        "magic evening",
        "village dance",
        "film night",
    ]);
    let (a, x, c, y) = (
        r.within(20, 90),
        r.within(6, 15),
        r.within(15, 80),
        r.within(2, 5),
    );
    let cost = r.within(50, a * x / 2);
    let purpose = r.pick(&[
        "the hall",
        "the costumes",
        "the musicians",
        "the lights",
        "the food",
    ]);
    let question = r.one([
        format!("For a {event}, {a} adult tickets at ${x} and {c} child tickets at ${y} are sold. The organisers pay ${cost} for {purpose}. How much money do they make?"),
        format!("A club holds a {event}. Adults pay ${x}, children pay ${y}. There are {a} adults and {c} children in the audience, and {purpose} cost the club ${cost}. What is its profit in dollars?"),
    ]);
    let mut w = Work::default();
    let (first, second) = (calc('*', &[a, x]), calc('*', &[c, y]));
    w.say(format!("The adults pay {}.", first.money));
    w.say(format!("The children pay {}.", second.money));
    let income = calc('+', &[first.value, second.value]);
    w.say(format!("The income is {}.", income.money));
    let profit = calc('-', &[income.value, cost]);
    w.say(format!("After the costs {} remain.", profit.money));
    (question, w.answer(profit.value))
}

pub(super) fn sharing(r: &mut StreamRng) -> Draft {
    let [p, q] = r.people();
    let thing = r.pick(&[
        "apricots", "walnuts", "toffees", "cherries", "grapes", "crackers", "figs",
    ]);
    let (friends, share) = (r.within(3, 9), r.within(5, 16));
    let a = r.within(6, friends * share - 6);
    let b = friends * share - a;
    let eaten = r.within(1, share - 2);
    let question = r.one([
        format!("{} has {a} {thing} and {} has {b}. They put them together and share them equally among {friends} children, themselves included. {} then eats {eaten} of {} own. How many {thing} does {} still have?", p.name, q.name, p.name, p.their(), p.they()),
        format!("{friends} children divide a bowl with {a} {thing} from {} and {b} {thing} from {} evenly. One of them eats {eaten} at once. How many has that child left?", p.name, q.name),
    ]);
    let mut w = Work::default();
    let all = calc('+', &[a, b]);
    w.say(format!("Together there are {} {thing}.", all.text));
    let each = calc('/', &[all.value, friends]);
    w.say(format!("Each child gets {} {thing}.", each.text));
    let left = calc('-', &[each.value, eaten]);
    w.say(format!("After eating, {} are left.", left.text));
    (question, w.answer(left.value))
}

pub(super) fn laps(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (sport, place, length) = r.pick(&[
        ("swims", "pool", 25),
        ("swims", "pool", 50),
        ("runs", "track", 400),
        ("skates", "rink", 200),
        ("jogs", "park path", 800),
    ]);
    let (n, days, weeks) = (r.within(4, 20), r.within(2, 5), r.within(2, 8));
    let question = r.one([
        format!("{} {sport} {n} laps of a {length}-metre {place} on {days} days of every week. How many metres does that make in {weeks} weeks?", p.name),
        format!("On each training day {} {sport} {n} laps, and one lap of the {place} measures {length} metres. There are {days} training days a week. What distance in metres does {} cover within {weeks} weeks?", p.name, p.they()),
    ]);
    let mut w = Work::default();
    let day = calc('*', &[n, length]);
    w.say(format!("On one day {} covers {} metres.", p.name, day.text));
    let week = calc('*', &[day.value, days]);
    w.say(format!("In a week that is {} metres.", week.text));
    let all = calc('*', &[week.value, weeks]);
    w.say(format!("In {weeks} weeks it is {} metres.", all.text));
    (question, w.answer(all.value))
}

pub(super) fn shelves(r: &mut StreamRng) -> Draft {
    let (shelves, per) = (r.within(4, 12), r.within(15, 40));
    let (out, back) = (r.within(20, 50), r.within(5, 19));
    let (place, thing) = r.pick(&[
        ("library", "books"),
        ("record shop", "records"),
        ("pottery", "bowls"),
        ("pharmacy", "jars"),
        ("wine cellar", "bottles"),
        ("toy store", "puzzles"),
    ]);
    let day = r.pick(&[
        "On Monday",
        "Before noon",
        "During the sale",
        "In one afternoon",
    ]);
    let question = r.one([
        format!("A {place} has {shelves} shelves with {per} {thing} on each. {day} customers take {out} {thing} away and bring {back} back. How many {thing} are on the shelves afterwards?"),
        format!("Each of the {shelves} shelves in a {place} carries {per} {thing}. {day}, {out} {thing} leave the {place} and {back} return. Find the number of {thing} that are there at the end."),
    ]);
    let mut w = Work::default();
    let all = calc('*', &[shelves, per]);
    w.say(format!("At first there are {} {thing}.", all.text));
    let fewer = calc('-', &[all.value, out]);
    w.say(format!("After {out} leave there are {}.", fewer.text));
    let end = calc('+', &[fewer.value, back]);
    w.say(format!(
        "With those that return there are {} {thing}.",
        end.text
    ));
    (question, w.answer(end.value))
}

pub(super) fn machines(r: &mut StreamRng) -> Draft {
    let (m, rate, hours) = (r.within(3, 9), r.within(2, 12) * 10, r.within(4, 10));
    // Rates are multiples of ten: the share of faulty ones comes out whole.
    let percent = r.pick(&[10, 20, 30]);
    let thing = r.pick(&[
        "bolts",
        "bulbs",
        "toothbrushes",
        "tiles",
        "springs",
        "envelopes",
        "crayons",
    ]);
    let question = r.one([
        format!("A factory runs {m} machines that each make {rate} {thing} an hour. They run {hours} hours a day, and {percent}% of the {thing} are faulty. How many good {thing} are made in a day?"),
        format!("{m} machines work {hours} hours without a break, each turning out {rate} {thing} per hour. An inspector throws {percent} percent of them away. How many {thing} pass the inspection?"),
    ]);
    let mut w = Work::default();
    let hourly = calc('*', &[m, rate]);
    w.say(format!(
        "All machines together make {} {thing} an hour.",
        hourly.text
    ));
    let all = calc('*', &[hourly.value, hours]);
    w.say(format!("In {hours} hours they make {} {thing}.", all.text));
    let bad = all.value * percent / 100;
    w.say(format!(
        "Of these {0} * {percent} / 100 = <<{0}*{percent}/100={bad}>>{bad} are faulty.",
        all.value
    ));
    let good = calc('-', &[all.value, bad]);
    w.say(format!("So {} are good.", good.text));
    (question, w.answer(good.value))
}

pub(super) fn phone(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (base, included, extra, over) = (
        r.within(12, 40),
        r.within(2, 10) * 10,
        r.within(2, 5),
        r.within(4, 30),
    );
    let used = included + over;
    let (service, unit) = r.pick(&[
        ("phone plan", "calls"),
        ("gym membership", "visits"),
        ("music lesson contract", "lessons"),
        ("car-sharing card", "trips"),
        ("printing account", "posters"),
    ]);
    let months = r.within(2, 4);
    let question = r.one([
        format!("A {service} costs ${base} a month and includes {included} {unit}. Every further one costs ${extra}. {} makes use of {used} {unit} in each of {months} months. What does {} pay altogether?", p.name, p.they()),
        format!("{} pays ${base} per month for a {service} with {included} {unit}, plus ${extra} for each one beyond that. How many dollars do {months} months with {used} {unit} each come to?", p.name),
    ]);
    let mut w = Work::default();
    let beyond = calc('-', &[used, included]);
    w.say(format!(
        "Each month {} goes over the limit by {} {unit}.",
        p.name, beyond.text
    ));
    let fee = calc('*', &[beyond.value, extra]);
    w.say(format!("They cost {}.", fee.money));
    let month = calc('+', &[base, fee.value]);
    w.say(format!("A month costs {}.", month.money));
    let all = calc('*', &[months, month.value]);
    w.say(format!("{months} months cost {}.", all.money));
    (question, w.answer(all.value))
}

pub(super) fn fence(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (a, b, gate, price) = (
        r.within(8, 40),
        r.within(6, 30),
        r.within(2, 4),
        r.within(3, 18),
    );
    let area = r.pick(&[
        "vegetable patch",
        "meadow",
        "playground",
        "courtyard",
        "sheep pasture",
    ]);
    let question = r.one([
        format!("A rectangular {area} is {a} metres long and {b} metres wide. {} fences it in but leaves a gap of {gate} metres for a gate. One metre of fence costs ${price}. How much does the fence cost?", p.name),
        format!("{} wants a fence around a {area} measuring {a} by {b} metres. No fence is needed along the {gate}-metre gate. What will it cost at ${price} a metre?", p.name),
    ]);
    let mut w = Work::default();
    let half = calc('+', &[a, b]);
    w.say(format!("Length and width make {} metres.", half.text));
    let around = calc('*', &[2, half.value]);
    w.say(format!("All the way round it is {} metres.", around.text));
    let fenced = calc('-', &[around.value, gate]);
    w.say(format!(
        "Without the gate {} metres are fenced.",
        fenced.text
    ));
    let cost = calc('*', &[fenced.value, price]);
    w.say(format!("The fence costs {}.", cost.money));
    (question, w.answer(cost.value))
}

pub(super) fn paint(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (walls, long, high) = (r.within(2, 6), r.within(4, 10), r.within(2, 4));
    let coats = r.within(2, 3);
    let area = walls * long * high * coats;
    let per_tin = [6, 8, 12, 4, 2]
        .into_iter()
        .find(|n| area % n == 0)
        .unwrap_or(1);
    let price = r.within(9, 30);
    let what = r.pick(&["walls", "panels", "boards", "screens"]);
    let question = r.one([
        format!("{} paints {walls} {what}, each {long} metres long and {high} metres high, with {coats} coats of paint. A tin covers {per_tin} square metres and costs ${price}. How much does {} spend on paint?", p.name, p.they()),
        format!("There are {walls} {what} of {long} by {high} metres to be given {coats} coats. If ${price} buys a tin that is enough for {per_tin} square metres, what does the paint cost {}?", p.name),
    ]);
    let mut w = Work::default();
    let one = calc('*', &[long, high]);
    w.say(format!("One measures {} square metres.", one.text));
    let all = calc('*', &[one.value, walls, coats]);
    w.say(format!(
        "With all coats {} square metres are painted.",
        all.text
    ));
    let tins = calc('/', &[all.value, per_tin]);
    w.say(format!("That takes {} tins.", tins.text));
    let cost = calc('*', &[tins.value, price]);
    w.say(format!("The tins cost {}.", cost.money));
    (question, w.answer(cost.value))
}

pub(super) fn stall(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (thing, crate_name) = r.pick(&[
        ("melons", "crate"),
        ("bunches of flowers", "bucket"),
        ("loaves", "basket"),
        ("jars of honey", "case"),
        ("pots of basil", "tray"),
    ]);
    let (n, per, sell) = (r.within(3, 10), r.within(6, 20), r.within(3, 9));
    let cost = r.within(2, per * (sell - 1).max(1) / 2 + 2);
    let spoiled = r.within(2, per - 2);
    let question = r.one([
        format!("{} buys {n} {crate_name}s of {thing} for ${cost} each. A {crate_name} holds {per}. {spoiled} cannot be sold; the others go for ${sell} apiece. How much profit does {} make?", p.name, p.they()),
        format!("On market day {} sells {thing} at ${sell} each. {} had bought {n} {crate_name}s with {per} in each, paying ${cost} a {crate_name}, but {spoiled} of the {thing} were damaged and given away. What was the gain in dollars?", p.name, p.they_cap()),
    ]);
    let mut w = Work::default();
    let all = calc('*', &[n, per]);
    w.say(format!("{} buys {} {thing}.", p.name, all.text));
    let good = calc('-', &[all.value, spoiled]);
    w.say(format!("Of these {} are sold.", good.text));
    let income = calc('*', &[good.value, sell]);
    w.say(format!("They bring {}.", income.money));
    let paid = calc('*', &[n, cost]);
    w.say(format!("Buying them cost {}.", paid.money));
    let gain = calc('-', &[income.value, paid.value]);
    w.say(format!("The profit is {}.", gain.money));
    (question, w.answer(gain.value))
}

pub(super) fn scores(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let subject = r.pick(&[
        "spelling",
        "geography",
        "biology",
        "French",
        "swimming",
        "archery",
    ]);
    let marks: Vec<i64> = (0..3).map(|_| r.within(60, 90)).collect();
    let sum: i64 = marks.iter().sum();
    let goal = (sum + r.within(68, 98)) / 4;
    let (a, b, c) = (marks[0], marks[1], marks[2]);
    let question = r.one([
        format!("{} scored {a}, {b} and {c} points in three {subject} tests. How many points does {} need in the fourth to reach an average of {goal}?", p.name, p.they()),
        format!("After three {subject} tests with results of {a}, {b} and {c}, {} hopes for an average of {goal} over four tests. What result is required in the last one?", p.name),
    ]);
    let mut w = Work::default();
    let needed = calc('*', &[4, goal]);
    w.say(format!(
        "Four tests with that average give {} points.",
        needed.text
    ));
    let have = calc('+', &marks);
    w.say(format!("{} already has {} points.", p.name, have.text));
    let last = calc('-', &[needed.value, have.value]);
    w.say(format!("The fourth test must bring {} points.", last.text));
    (question, w.answer(last.value))
}

pub(super) fn parking(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (first, more, hours, days) = (
        r.within(3, 9),
        r.within(1, 4),
        r.within(3, 10),
        r.within(2, 6),
    );
    let (thing, verb) = r.pick(&[
        ("A garage", "parks a van"),
        ("A boat rental", "takes a canoe"),
        ("A bicycle stand", "borrows a bike"),
        ("A studio", "uses a piano"),
        ("A workshop", "hires a drill"),
    ]);
    let question = r.one([
        format!("{thing} charges ${first} for the first hour and ${more} for every hour after it. {} {verb} for {hours} hours on each of {days} days. What is the total charge?", p.name),
        format!("On {days} days {} {verb} for {hours} hours. The price is ${first} for one hour, then ${more} for each additional hour. How many dollars does {} pay in all?", p.name, p.they()),
    ]);
    let mut w = Work::default();
    let rest = calc('-', &[hours, 1]);
    w.say(format!(
        "After the first hour there are {} hours.",
        rest.text
    ));
    let fee = calc('*', &[rest.value, more]);
    w.say(format!("They cost {}.", fee.money));
    let day = calc('+', &[first, fee.value]);
    w.say(format!("One day costs {}.", day.money));
    let all = calc('*', &[days, day.value]);
    w.say(format!("All the days cost {}.", all.money));
    (question, w.answer(all.value))
}

pub(super) fn feeding(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (animal, food) = r.pick(&[
        ("rabbits", "hay"),
        ("donkeys", "oats"),
        ("hamsters", "seeds"),
        ("ducks", "grain"),
        ("alpacas", "pellets"),
        ("tortoises", "greens"),
    ]);
    let (n, meals, grams) = (r.within(2, 9), r.within(2, 3), r.within(2, 12) * 10);
    let daily = n * meals * grams;
    let days = r.within(4, 15);
    let bag = daily * days;
    let price = r.within(1, 6) * days;
    let question = r.one([
        format!("{} keeps {n} {animal}. Each gets {grams} grams of {food} {meals} times a day. A sack of {bag} grams costs ${price}. How much does a day's food for all the {animal} cost?", p.name),
        format!("{n} {animal} each eat {meals} meals of {grams} grams of {food} a day. {} buys a {bag}-gram sack for ${price}. What does feeding them cost per day, in dollars?", p.name),
    ]);
    let mut w = Work::default();
    let one = calc('*', &[meals, grams]);
    w.say(format!("One animal eats {} grams a day.", one.text));
    let all = calc('*', &[n, one.value]);
    w.say(format!("All of them eat {} grams a day.", all.text));
    let lasts = calc('/', &[bag, all.value]);
    w.say(format!("A sack lasts {} days.", lasts.text));
    let cost = calc('/', &[price, lasts.value]);
    w.say(format!("A day costs {}.", cost.money));
    (question, w.answer(cost.value))
}

pub(super) fn buses(r: &mut StreamRng) -> Draft {
    let (seats, count) = (r.pick(&[12, 15, 20, 24, 30]), r.within(3, 7));
    let people = seats * count;
    let classes = r.pick(&[2, 3, 4, 5]);
    let adults = people % classes + classes * r.within(1, 3);
    let per = (people - adults) / classes;
    let cost = r.within(40, 180);
    let (vehicle, place) = (
        r.pick(&["bus", "van", "boat", "tram"]),
        r.pick(&[
            "the zoo",
            "a castle",
            "the planetarium",
            "an island",
            "the theatre",
        ]),
    );
    let question = r.one([
        format!("{classes} classes of {per} pupils and {adults} adults travel to {place}. One {vehicle} has {seats} places and costs ${cost} to hire. What do all the vehicles cost together if each is full?"),
        format!("A school takes {classes} groups with {per} children each and {adults} teachers to {place}. They fill every {vehicle} to the last of its {seats} seats. If renting one {vehicle} costs ${cost}, how much is paid for transport?"),
    ]);
    let mut w = Work::default();
    let pupils = calc('*', &[classes, per]);
    w.say(format!("There are {} pupils.", pupils.text));
    let all = calc('+', &[pupils.value, adults]);
    w.say(format!("With the adults {} people travel.", all.text));
    let number = calc('/', &[all.value, seats]);
    w.say(format!("They need {} vehicles.", number.text));
    let total = calc('*', &[number.value, cost]);
    w.say(format!("Hiring them costs {}.", total.money));
    (question, w.answer(total.value))
}

pub(super) fn recipe(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (dish, thing, unit) = r.pick(&[
        ("pancakes", "flour", "grams"),
        ("lentil soup", "lentils", "grams"),
        ("lemonade", "sugar", "spoons"),
        ("rice pudding", "milk", "millilitres"),
        ("salad dressing", "oil", "millilitres"),
    ]);
    let (serves, factor, each) = (r.within(2, 6), r.within(2, 6), r.within(3, 45) * 2);
    let guests = serves * factor;
    let (need, have) = (serves * each, r.within(5, guests * each - 5));
    let question = r.one([
        format!("A recipe for {dish} that serves {serves} uses {need} {unit} of {thing}. {} cooks for {guests} people and already has {have} {unit} of {thing} in the cupboard. How many more {unit} must {} buy?", p.name, p.they()),
        format!("{} needs {need} {unit} of {thing} to make {dish} for {serves} people. How many {unit} are missing for {guests} people when {have} {unit} are at hand?", p.name),
    ]);
    let mut w = Work::default();
    let one = calc('/', &[need, serves]);
    w.say(format!("One person needs {} {unit} of {thing}.", one.text));
    let all = calc('*', &[guests, one.value]);
    w.say(format!("{guests} people need {} {unit}.", all.text));
    let buy = calc('-', &[all.value, have]);
    w.say(format!("{} has to buy {} {unit}.", p.name, buy.text));
    (question, w.answer(buy.value))
}
