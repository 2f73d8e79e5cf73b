//! The subset of Markdown that these pages use.

/// A fenced block.
#[derive(Debug, PartialEq)]
pub struct Block {
    /// The language after the fence.
    pub language: String,
    /// Its lines.
    pub text: String,
}

/// The page's fenced blocks, and the lines outside of them.
fn split(page: &str) -> (Vec<Block>, Vec<&str>) {
    let (mut blocks, mut prose) = (Vec::new(), Vec::new());
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(language), None) => {
                open = Some(Block {
                    language: language.trim().to_owned(),
                    text: String::new(),
                });
            }
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => prose.push(line),
        }
    }
    assert!(open.is_none(), "a fence stays open");
    (blocks, prose)
}

/// Fenced blocks of a language.
pub fn blocks(page: &str, language: &str) -> Vec<Block> {
    let (mut blocks, _) = split(page);
    blocks.retain(|block| block.language == language);
    blocks
}

/// Texts between single backticks, outside of fenced blocks.
pub fn code_spans(page: &str) -> Vec<String> {
    let prose = split(page).1.join("\n");
    assert!(
        prose.matches('`').count().is_multiple_of(2),
        "a backtick has no partner"
    );
    let odd = |(i, text): (usize, &str)| (i % 2 == 1).then(|| text.to_owned());
    prose.split('`').enumerate().filter_map(odd).collect()
}

/// Targets of links and images.
pub fn links(page: &str) -> Vec<String> {
    let prose = split(page).1.join("\n");
    let behind = prose.split("](").skip(1);
    let target = |text: &str| Some(text.split_once(')')?.0.to_owned());
    behind.filter_map(target).collect()
}

/// Anchors of the headings, as web pages of repositories name them.
pub fn anchors(page: &str) -> Vec<String> {
    let headings = split(page).1;
    let headings = headings.iter().filter(|line| line.starts_with('#'));
    headings
        .map(|line| slug(line.trim_start_matches('#')))
        .collect()
}

fn slug(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let lower = heading.trim().to_lowercase();
    let kept: String = lower.chars().filter(kept).collect();
    kept.replace(' ', "-")
}

#[test]
fn pages_are_taken_apart() {
    let page = "# A `b` [c](d.md#e)\n\n```sh\nx `y` [z](w)\n```\n## What's on, 4.3\n![i](j.png)\n";
    assert_eq!(links(page), ["d.md#e", "j.png"]);
    assert_eq!(code_spans(page), ["b"]);
    assert_eq!(anchors(page).last().unwrap(), "whats-on-43");
    assert_eq!(blocks(page, "sh")[0].text, "x `y` [z](w)\n");
    assert!(blocks(page, "toml").is_empty());
}
