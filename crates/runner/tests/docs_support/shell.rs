//! The subset of shell syntax that the examples use.

/// The simple commands of a script as words, without quotes, backslashes, comments, and the parts
/// after a pipe or a redirection.
pub fn commands(script: &str) -> Vec<Vec<String>> {
    let mut reader = Reader::default();
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(c) => reader.push(c),
            },
            '\'' => {
                reader.open();
                for c in chars.by_ref().take_while(|c| *c != '\'') {
                    reader.push(c);
                }
            }
            '"' => {
                reader.open();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    match (c, chars.peek()) {
                        ('\\', Some('"' | '\\')) => reader.push(chars.next().unwrap_or(c)),
                        _ => reader.push(c),
                    }
                }
            }
            '#' if reader.word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            '\n' | ';' | '&' => reader.end_command(),
            '|' | '<' | '>' => {
                reader.end_word();
                reader.cut = true;
            }
            c if c.is_whitespace() => reader.end_word(),
            c => reader.push(c),
        }
    }
    reader.end_command();
    reader.commands
}

#[derive(Default)]
struct Reader {
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    word: Option<String>,
    /// True after a pipe or a redirection.
    cut: bool,
}

impl Reader {
    fn open(&mut self) {
        self.word.get_or_insert_default();
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        let word = self.word.take();
        self.words.extend(word.filter(|_| !self.cut));
    }

    fn end_command(&mut self) {
        self.end_word();
        self.cut = false;
        let words = std::mem::take(&mut self.words);
        if !words.is_empty() {
            self.commands.push(words);
        }
    }
}

/// A command of this program with its arguments, `omnidraft` first; `None` for other programs.
/// `cargo run ... --` counts as the program, unless it names another package.
pub fn omnidraft(words: &[String]) -> Option<Vec<String>> {
    let assignment = |word: &&String| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    };
    let skipped = words.iter().take_while(assignment).count();
    let (program, arguments) = words.get(skipped..)?.split_first()?;
    let arguments = match program.as_str() {
        "omnidraft" => arguments,
        "cargo" if arguments.first()? == "run" && package(arguments).is_none() => {
            let start = arguments.iter().position(|word| word == "--")?;
            arguments.get(start + 1..)?
        }
        path if path.ends_with("/omnidraft") => arguments,
        _ => return None,
    };
    let name = std::iter::once("omnidraft".to_owned());
    Some(name.chain(arguments.iter().cloned()).collect())
}

/// The package that a cargo command names.
pub fn package(words: &[String]) -> Option<&String> {
    let flag = words.iter().position(|word| word == "-p")?;
    words.get(flag + 1)
}

#[test]
fn scripts_are_split() {
    let words = |script: &str| commands(script).concat();
    let script =
        "A=1 omnidraft run x --set 'a=[\"L\"]' \\\n    --only \"b c\"   # it's a comment\n";
    let expected = [
        "A=1",
        "omnidraft",
        "run",
        "x",
        "--set",
        "a=[\"L\"]",
        "--only",
        "b c",
    ];
    assert_eq!(words(script), expected);
    assert_eq!(
        omnidraft(&words(script)).unwrap()[..2],
        ["omnidraft", "run"]
    );
    assert_eq!(
        words("omnidraft pad x | jq .y > z"),
        ["omnidraft", "pad", "x"]
    );
    assert_eq!(commands("a b && c; d").len(), 3);
    let cargo = words("cargo run --release --locked -- run x");
    assert_eq!(omnidraft(&cargo).unwrap(), ["omnidraft", "run", "x"]);
    assert_eq!(omnidraft(&words("cargo run -p other -- x")), None);
    assert_eq!(omnidraft(&words("cargo test")), None);
}
