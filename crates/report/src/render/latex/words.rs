//! Text in LaTeX, with the paper's names as formulas.

/// Names of methods and their formulas, the longest first.
const NAMES: [(&str, &str); 6] = [
    (
        "L_DM+L_N-gram",
        "$L_\\mathrm{DM}+\\lambda L_\\mathrm{N\\mbox{-}gram}$",
    ),
    ("N-gram_pp", "N-gram$_\\mathrm{pp}$"),
    ("L_N-gram", "$L_\\mathrm{N\\mbox{-}gram}$"),
    ("SpD_DM", "SpD$_\\mathrm{DM}$"),
    ("lambda", "$\\lambda$"),
    ("L_DM", "$L_\\mathrm{DM}$"),
];

/// Text with names as formulas and everything else escaped.
pub(super) fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(first) = rest.chars().next() {
        // A name inside a longer word is left alone.
        let inside = raw[..raw.len() - rest.len()]
            .chars()
            .next_back()
            .is_some_and(|before| before.is_alphanumeric() || before == '_');
        let named = NAMES.iter().find(|(name, _)| rest.starts_with(name));
        match named {
            Some((name, formula)) if !inside => {
                out.push_str(formula);
                rest = &rest[name.len()..];
            }
            _ => {
                push(first, &mut out);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

/// Approximate number of characters of a text in print.
pub(super) fn width(raw: &str) -> usize {
    raw.chars().count()
}

/// A label: the experiment's name and an id, without special characters of TeX.
pub(super) fn label(experiment: &str, id: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || c == '.' => c,
        _ => '-',
    };
    format!("{experiment}-{id}").chars().map(plain).collect()
}

fn push(character: char, out: &mut String) {
    let replaced = match character {
        '\\' => "\\textbackslash{}",
        '&' => "\\&",
        '%' => "\\%",
        '$' => "\\$",
        '#' => "\\#",
        '_' => "\\_",
        '{' => "\\{",
        '}' => "\\}",
        '~' => "\\textasciitilde{}",
        '^' => "\\textasciicircum{}",
        '<' => "$<$",
        '>' => "$>$",
        '|' => "$|$",
        '–' => "--",
        '—' => "---",
        '…' => "\\ldots{}",
        '\u{2212}' => "$-$",
        '±' => "$\\pm$",
        '×' => "$\\times$",
        '≤' => "$\\leq$",
        '≥' => "$\\geq$",
        '→' => "$\\to$",
        '·' => "$\\cdot$",
        'λ' => "$\\lambda$",
        'γ' => "$\\gamma$",
        '␣' => "\\textvisiblespace{}",
        '⏎' => "$\\hookleftarrow$",
        '⇥' => "$\\mapsto$",
        '\n' => " ",
        other => {
            out.push(other);
            return;
        }
    };
    out.push_str(replaced);
}
