//! Choices and words shared by the generators.

use streams::StreamRng;

/// Given names with the pronouns the texts use for them.
const PEOPLE: [(&str, bool); 56] = [
    ("Amara", true),
    ("Bruno", false),
    ("Celia", true),
    ("Dario", false),
    ("Edith", true),
    ("Farid", false),
    ("Greta", true),
    ("Hugo", false),
    ("Ines", true),
    ("Jonas", false),
    ("Kezia", true),
    ("Luca", false),
    ("Mina", true),
    ("Nils", false),
    ("Odette", true),
    ("Pablo", false),
    ("Qiana", true),
    ("Ravi", false),
    ("Salma", true),
    ("Tomas", false),
    ("Uma", true),
    ("Viktor", false),
    ("Wanda", true),
    ("Yusuf", false),
    ("Zelda", true),
    ("Anders", false),
    ("Beatriz", true),
    ("Cosmo", false),
    ("Daphne", true),
    ("Emeka", false),
    ("Freya", true),
    ("Gideon", false),
    ("Hana", true),
    ("Ivo", false),
    ("Jolene", true),
    ("Kofi", false),
    ("Leonie", true),
    ("Marek", false),
    ("Nadia", true),
    ("Otis", false),
    ("Priya", true),
    ("Quentin", false),
    ("Rosa", true),
    ("Stefan", false),
    ("Thea", true),
    ("Umar", false),
    ("Vera", true),
    ("Wes", false),
    ("Ximena", true),
    ("Yara", true),
    ("Zane", false),
    ("Astrid", true),
    ("Basil", false),
    ("Corinne", true),
    ("Desmond", false),
    ("Elif", true),
];

/// Invented surnames and place names for the news stream.
pub(super) const SURNAMES: [&str; 40] = [
    "Alderwick",
    "Bramhurst",
    "Cottesloe",
    "Dunmarrow",
    "Eastlake",
    "Fennimore",
    "Garrowby",
    "Hathersage",
    "Inchbold",
    "Jessop",
    "Kilbrae",
    "Langmere",
    "Marchbank",
    "Netherby",
    "Oakshott",
    "Penhallow",
    "Quillam",
    "Rushbrook",
    "Stannard",
    "Thornley",
    "Underhay",
    "Vexley",
    "Wainscott",
    "Yarborough",
    "Ashdown",
    "Bellweather",
    "Crane",
    "Dalgarno",
    "Ferris",
    "Gable",
    "Holloway",
    "Kettering",
    "Lomax",
    "Mortlake",
    "Osgood",
    "Pickard",
    "Redfern",
    "Sallis",
    "Tennick",
    "Whitlow",
];

/// Invented towns.
pub(super) const TOWNS: [&str; 36] = [
    "Harrowby",
    "Kelsford",
    "Port Ardle",
    "Wenlow",
    "Marsh Barton",
    "Dunholme Bay",
    "Castlemere",
    "Little Averton",
    "Stonebeck",
    "Ravensport",
    "Elderby",
    "Thornwick",
    "Glenfarrow",
    "Saltcote",
    "Upper Maddock",
    "Brackenridge",
    "Loxwell",
    "Pembrey Cross",
    "Aldermoor",
    "Westerhay",
    "Coldbrook",
    "Finchley Vale",
    "Otterham",
    "Quarrington",
    "Shelby Green",
    "Tarnside",
    "Vale of Orrin",
    "Whinfield",
    "Yarrowdale",
    "Ingleby",
    "Netherstone",
    "Hollowmere",
    "Cranwick",
    "Fallowden",
    "Burnhope",
    "Eastmarch",
];

/// A person in a word problem.
#[derive(Debug, Clone, Copy)]
pub(super) struct Person {
    pub name: &'static str,
    female: bool,
}

impl Person {
    pub fn they(self) -> &'static str {
        if self.female { "she" } else { "he" }
    }

    pub fn they_cap(self) -> &'static str {
        if self.female { "She" } else { "He" }
    }

    pub fn their(self) -> &'static str {
        if self.female { "her" } else { "his" }
    }
}

/// Draws in the forms the templates use.
pub(super) trait Choose {
    /// One of some constants.
    fn pick<T: Copy>(&mut self, items: &[T]) -> T;
    /// One of some texts, already filled in.
    fn one<const N: usize>(&mut self, texts: [String; N]) -> String;
    /// A number of an inclusive range.
    fn within(&mut self, low: i64, high: i64) -> i64;
    /// A person.
    fn person(&mut self) -> Person;
    /// `N` different people.
    fn people<const N: usize>(&mut self) -> [Person; N];
    /// `n` different members, in random order (fewer where there are fewer).
    fn sample<T: Clone>(&mut self, items: &[T], n: usize) -> Vec<T>;
    /// A fair coin.
    fn flip(&mut self) -> bool;
}

impl Choose for StreamRng {
    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn one<const N: usize>(&mut self, mut texts: [String; N]) -> String {
        std::mem::take(&mut texts[self.below(N)])
    }

    fn within(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).max(1) as usize) as i64
    }

    fn person(&mut self) -> Person {
        let (name, female) = self.pick(&PEOPLE);
        Person { name, female }
    }

    fn people<const N: usize>(&mut self) -> [Person; N] {
        let drawn = self.sample(&PEOPLE, N);
        std::array::from_fn(|i| {
            let (name, female) = drawn[i];
            Person { name, female }
        })
    }

    fn sample<T: Clone>(&mut self, items: &[T], n: usize) -> Vec<T> {
        let mut order: Vec<usize> = (0..items.len()).collect();
        self.shuffle(&mut order);
        order
            .into_iter()
            .take(n)
            .map(|i| items[i].clone())
            .collect()
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 1
    }
}

/// `a`, or `an` before a vowel.
pub(super) fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    }
}

/// `one`, `two`, ... up to twelve; digits above.
pub(super) fn number_word(n: i64) -> String {
    const WORDS: [&str; 13] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
        "eleven", "twelve",
    ];
    usize::try_from(n)
        .ok()
        .and_then(|i| WORDS.get(i))
        .map_or_else(|| n.to_string(), |w| (*w).to_owned())
}

/// With the first letter in upper case.
pub(super) fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|c| c.to_uppercase().chain(chars).collect())
        .unwrap_or_default()
}

/// `a, b and c`.
pub(super) fn listed<T: AsRef<str>>(items: &[T]) -> String {
    match items {
        [] => String::new(),
        [one] => one.as_ref().to_owned(),
        [head @ .., last] => {
            let head: Vec<&str> = head.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", head.join(", "), last.as_ref())
        }
    }
}
