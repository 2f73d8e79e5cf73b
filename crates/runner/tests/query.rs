//! `omnidraft query`: SQL over the rows of published runs, in programs that have it.

use std::path::Path;
use std::process::{Command, Output};

const RUN: &str = "results/quickstart";

fn omnidraft(arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_omnidraft"));
    command.args(arguments).current_dir(root).output().unwrap()
}

/// Fails unless the program refused with advice that has these words.
fn refused(arguments: &[&str], words: &[&str]) {
    let output = omnidraft(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for word in ["error: ", "\nhint: "].iter().chain(words) {
        assert!(said.contains(word), "{arguments:?}: {word}: {said}");
    }
    // An error is two lines, whatever polars says.
    assert_eq!(said.lines().count(), 2, "{arguments:?}: {said}");
}

#[cfg(not(feature = "query"))]
#[test]
fn a_program_without_sql_says_how_to_build_it() {
    let sql = "select * from prompts";
    refused(
        &["query", RUN, sql],
        &["--features query", "omnidraft rows"],
    );
    // It keeps the answers of pages.
    let kept = omnidraft(&["quote", "docs/query.md", "--check"]);
    assert!(kept.status.success(), "{kept:?}");
}

#[cfg(feature = "query")]
mod with_sql {
    use super::{RUN, omnidraft, refused};
    use std::collections::BTreeMap;

    /// Standard output of a question.
    fn answer(arguments: &[&str]) -> String {
        let output = omnidraft(&[&["query"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_page_has_the_answers_to_its_questions() {
        let checked = omnidraft(&["quote", "docs/query.md", "--check"]);
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{said}");
    }

    /// Rows of every table: the same columns, order and values as in `omnidraft rows`.
    #[test]
    fn tables_are_those_of_rows() {
        for table in ["prompts", "rounds", "updates", "heads"] {
            let rows = omnidraft(&["rows", RUN, "--table", table]);
            let rows = String::from_utf8(rows.stdout).unwrap();
            let select = format!("select * from {table}");
            let mut asked = answer(&[RUN, &select, "--format", "csv"]);
            let mut all = csv::Reader::from_reader(rows.as_bytes());
            let columns: Vec<String> = all.headers().unwrap().iter().map(str::to_owned).collect();
            let mut of_sql = csv::Reader::from_reader(asked.as_bytes());
            let own: Vec<String> = of_sql
                .headers()
                .unwrap()
                .iter()
                .map(str::to_owned)
                .collect();
            assert_eq!((own[0].as_str(), &own[1..]), ("run", &columns[..]));
            let mut count = 0;
            for (row, other) in all.records().zip(of_sql.records()) {
                let (row, other) = (row.unwrap(), other.unwrap());
                assert_eq!(&other[0], "quickstart");
                assert!(row.iter().eq(other.iter().skip(1)), "{row:?} {other:?}");
                count += 1;
            }
            assert_eq!(count, rows.lines().count() - 1, "{table}");
            asked.clear();
        }
    }

    #[test]
    fn sums_are_those_of_the_rows() {
        let rows = omnidraft(&["rows", RUN]).stdout;
        let mut reader = csv::Reader::from_reader(rows.as_slice());
        let head = reader.headers().unwrap().clone();
        let at = |name: &str| head.iter().position(|own| own == name).unwrap();
        let mut wanted: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for row in reader.records() {
            let row = row.unwrap();
            let sums = wanted.entry(row[at("arm")].to_owned()).or_default();
            sums.0 += row[at("new_tokens")].parse::<u64>().unwrap();
            sums.1 += row[at("rounds")].parse::<u64>().unwrap();
        }
        let sql = "select arm, sum(new_tokens), sum(rounds) as r, min(accepted) - max(proposed) as less, \
                   sum(new_tokens) / sum(rounds) as ratio from prompts group by arm order by arm";
        let text = answer(&[RUN, sql, "--format", "csv"]);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let mut found = 0;
        for row in reader.records() {
            let row = row.unwrap();
            let (tokens, rounds) = wanted[&row[0]];
            assert_eq!(row[1].parse(), Ok(tokens));
            assert_eq!(row[2].parse(), Ok(rounds));
            // Counts are signed in SQL.
            assert!(row[3].parse::<i64>().unwrap() <= 0, "{row:?}");
            let ratio: f64 = row[4].parse().unwrap();
            assert_eq!(ratio, tokens as f64 / rounds as f64);
            found += 1;
        }
        assert_eq!(found, wanted.len());
    }

    #[test]
    fn answers_have_three_forms() {
        let sql = "select 'a|b' as \"of it\", 0.5 as x, null as none \
                   union all select 'c' as \"of it\", 2.25 as x, null as none order by x";
        let table = answer(&[RUN, sql]);
        assert_eq!(
            table,
            "of it     x  none\n-----  ----  ----\na|b    0.50\nc      2.25\n"
        );
        let md = answer(&[RUN, sql, "--format", "md"]);
        assert!(
            md.starts_with("| of it |    x | none |\n|:------|-----:|"),
            "{md}"
        );
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("answer.csv");
        assert_eq!(answer(&[RUN, sql, "--out", out.to_str().unwrap()]), "");
        let written = std::fs::read_to_string(&out).unwrap();
        assert_eq!(written, "of it,x,none\na|b,0.5,\nc,2.25,\n");
        let none = answer(&[RUN, "select arm from prompts where arm = 'x'"]);
        assert_eq!(none, "arm\n---\n");
    }

    #[test]
    fn several_runs_are_asked_as_one() {
        let sql =
            "select run, count(*) as n, count(way) as ways from prompts group by run order by run";
        let other = "results/real-drift-pays";
        let both = answer(&[RUN, other, "--format", "csv", sql]);
        let one = |run| answer(&["--format", "csv", run, sql]);
        let lines = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            lines(&both),
            [lines(&one(RUN)), lines(&one(other))].concat()
        );
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_advice() {
        let count = "select count(*) from prompts";
        refused(
            &["query", "runs/none-such", count],
            &["runs/none-such: no such"],
        );
        refused(&["query", "docs", count], &["docs: no cell"]);
        refused(&["query", RUN], &["a run and SQL"]);
        refused(
            &["query", RUN, count, "--out", "no/such/f.csv"],
            &["no/such/f.csv"],
        );
        for (sql, words) in [
            ("selct 1", &["examples"] as &[&str]),
            ("select (", &["examples"]),
            ("", &["one"]),
            ("select 1; select 2", &["one"]),
            (
                "select acceptence_rate from prompts",
                &["acceptence_rate", "did you mean `acceptance_rate`?"],
            ),
            (
                "select colour from prompts",
                &["colour", "omnidraft rows RUN --columns"],
            ),
            (
                "select * from promts",
                &["promts", "did you mean `prompts`?"],
            ),
            (
                "select * from weights",
                &["weights", "prompts, rounds, updates, heads"],
            ),
            ("select no_such(arm) from prompts", &["no_such"]),
            ("select arm from prompts where arm > 1 + 'a'", &[]),
            ("select sum(arm) from prompts", &[]),
        ] {
            refused(&["query", RUN, sql], words);
        }
    }
}
