use super::layout::LINE;
use super::*;

fn number(value: f64, interval: bool) -> Entry {
    Entry::number(Number {
        metric: "acceptance".to_owned(),
        interval: interval.then(|| "0.10\u{2013}0.20".to_owned()),
        paper: Some(0.42),
        against: Some("paper 0.42, \u{2212}0.31".to_owned()),
        ..Number::plain(value, format!("{value:.2}"))
    })
}

/// Two targets, three arms, and `columns` columns of numbers.
fn table(columns: usize, rows: usize) -> Table {
    let mut head = vec![Head::words("target"), Head::words("arm")];
    head.extend((0..columns).map(|column| Head::numbers(&format!("task-{column}"))));
    let arms = ["autoregressive", "L_DM", "L_DM+L_N-gram"];
    let rows = (0..rows).map(|row| {
        let mut entries = vec![
            Entry::text(["L", "Q"][row / arms.len() % 2]),
            Entry::text(arms[row % arms.len()]),
        ];
        let value = |column: usize| 0.1 + 0.01 * ((row * 7 + column) % 10) as f64;
        entries.extend((0..columns).map(|column| number(value(column), true)));
        entries
    });
    Table {
        id: "acceptance".to_owned(),
        title: "Acceptance".to_owned(),
        lead: "Accepted / proposed.".to_owned(),
        head,
        rows: rows.collect(),
    }
}

/// Maximum width of the lines of a block, in digits.
fn widest(latex: &str) -> f64 {
    let mut widest: f64 = 0.0;
    for block in latex.split("\\begin{tabular}").skip(1) {
        let rows = block.split("\\midrule").nth(1).unwrap();
        let rows = rows.lines().filter(|line| line.contains('&'));
        let cells: Vec<Vec<f64>> = rows
            .map(|row| {
                let row = row.replace(" \\tabularnewline", "");
                row.split(" & ")
                    .map(|cell| match cell.contains("scriptsize") {
                        true => 0.85 * (cell.len() - "{\\scriptsize}".len()) as f64,
                        false if cell.contains('$') => 12.0,
                        false => cell.replace("\\textbf{", "").len() as f64,
                    })
                    .collect()
            })
            .collect();
        let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
        let of = |column: usize| {
            let cells = cells.iter().filter_map(move |row| row.get(column));
            cells.copied().fold(0.0, f64::max)
        };
        let width: f64 = (0..columns).map(|column| of(column) + 1.6).sum();
        widest = widest.max(width);
    }
    widest
}

#[test]
fn names_are_formulas_and_the_rest_is_escaped() {
    assert_eq!(
        text("SpD_DM & 5% {a}"),
        "SpD$_\\mathrm{DM}$ \\& 5\\% \\{a\\}"
    );
    assert_eq!(
        text("L_DM+L_N-gram (lambda = 0.2)"),
        "$L_\\mathrm{DM}+\\lambda L_\\mathrm{N\\mbox{-}gram}$ ($\\lambda$ = 0.2)"
    );
    assert_eq!(text("XL_DM, a_b"), "XL\\_DM, a\\_b");
    assert_eq!(text("0.1\u{2013}0.2 → λ"), "0.1--0.2 $\\to$ $\\lambda$");
    assert_eq!(
        label("table1_8m", "tokens_per_round"),
        "table1-8m-tokens-per-round"
    );
}

#[test]
fn tables_are_no_wider_than_a_page_and_no_higher() {
    for columns in 1..12 {
        let latex = of_table(&table(columns, 6), "mine");
        assert!(
            widest(&latex) <= LINE,
            "{columns} columns: {}",
            widest(&latex)
        );
        for column in 0..columns {
            let name = format!("task-{column} ");
            assert_eq!(latex.matches(&name).count(), 1, "{name}: {latex}");
        }
    }
    let long = of_table(&table(3, 60), "mine");
    for float in long.split("\\begin{table}").skip(1) {
        assert!(float.matches("tabularnewline").count() <= 40, "{float}");
    }
    assert_eq!(long.matches("\\label{").count(), 1);
    assert!(long.matches("(continued)").count() >= 2, "{long}");
}

#[test]
fn long_words_are_broken_into_lines() {
    let mut words = table(2, 3);
    for (number, row) in words.rows.iter_mut().enumerate() {
        row[1] = Entry::text(format!("{number} {}", "word ".repeat(30)));
    }
    let latex = of_table(&words, "mine");
    assert!(
        latex.contains("p{0.") && latex.contains("\\raggedright 0 word"),
        "{latex}"
    );
    let all = Table {
        head: ["claim", "rule", "verdict"].map(Head::words).to_vec(),
        rows: vec![vec![
            Entry::text("a claim ".repeat(12)),
            Entry::text("a rule ".repeat(12)),
            Entry::text("holds"),
        ]],
        ..words
    };
    let latex = of_table(&all, "mine");
    assert_eq!(latex.matches("\\begin{tabular}").count(), 1, "{latex}");
    let fixed = latex
        .split("p{")
        .skip(1)
        .map(|rest| rest[..4].parse::<f64>().unwrap());
    assert!(fixed.sum::<f64>() < 0.9, "{latex}");
}

#[test]
fn the_best_arm_is_bold_and_the_papers_values_stand_apart() {
    let mut own = table(1, 3);
    for (row, value) in own.rows.iter_mut().zip([0.10, 0.30, 0.30]) {
        row[2] = number(value, false);
    }
    let page = Page {
        title: "t".to_owned(),
        lead: String::new(),
        warnings: Vec::new(),
        sections: vec![Section::Table(own)],
        definitions: Vec::new(),
        provenance: Vec::new(),
    };
    let files = latex(&page, "mine");
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "report.tex",
            "table-acceptance-paper.tex",
            "table-acceptance.tex"
        ]
    );
    let table = &files["table-acceptance.tex"];
    assert_eq!(table.matches("\\textbf{0.30}").count(), 2, "{table}");
    assert!(
        !table.contains("paper") && !table.contains("0.42"),
        "{table}"
    );
    assert!(table.contains("\\label{tab:mine-acceptance}"), "{table}");
    assert_eq!(
        files["table-acceptance-paper.tex"].matches("0.42").count(),
        3
    );
    assert!(files["report.tex"].contains("\\input{table-acceptance.tex}"));
}
