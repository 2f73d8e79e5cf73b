//! The pages are correct: links have targets, commands are accepted by the program, experiment
//! files load, the generated page is that of this program.

use crate::docs_support;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{ArgMatches, CommandFactory, Parser};
use docs_support::markdown::{anchors, blocks, code_spans, links};
use docs_support::shell::{commands, omnidraft, package};
use docs_support::{Page, files, folders, pages, repository};
use experiment::{LoadOptions, Plan};
use report::load_paper;
use runner::cli::Cli;

/// Folders at the beginning of paths in the repository.
const TOP: [&str; 9] = [
    ".ci",
    "crates",
    "datasets",
    "docs",
    "experiments",
    "models",
    "results",
    "scripts",
    "target",
];
/// Folders inside a crate at the beginning of paths on the crate's own page.
const INSIDE: [&str; 3] = ["src", "tests", "benches"];
/// Placeholders for names that the reader chooses.
const PLACEHOLDERS: [&str; 8] = [
    "NAME", "STAGE", "CELL", "TASK", "DIR", "FILE", "CRATE", "DATA",
];
/// The file that a reader of the tutorial writes.
const TUTORIAL: &str = "experiments/mine.toml";
/// The page of the tutorial.
const TUTORIAL_PAGE: &str = "docs/experiments.md";
/// Options whose value is an output.
const WRITTEN: [&str; 2] = ["--out", "--save"];

/// Fails with all faults at once.
fn none(faults: &[String]) {
    assert!(faults.is_empty(), "\n  {}\n", faults.join("\n  "));
}

#[test]
fn links_lead_somewhere() {
    let mut faults = Vec::new();
    for page in pages() {
        for link in links(&page.text) {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => repository().join(&page.name),
                path => page.folder().join(path),
            };
            if !target.exists() {
                faults.push(format!("{}: {link}: there is no such file", page.name));
            } else if !anchor.is_empty() && !has_anchor(&target, anchor) {
                faults.push(format!("{}: {link}: there is no such heading", page.name));
            }
        }
    }
    none(&faults);
}

fn has_anchor(page: &Path, anchor: &str) -> bool {
    let text = std::fs::read_to_string(page).unwrap();
    anchors(&text).iter().any(|own| own == anchor)
}

#[test]
fn the_summary_of_the_site_names_every_page_once() {
    let links = links(&Page::read("docs/SUMMARY.md").text);
    let own = links.iter().filter(|link| !link.contains('/'));
    let mut own: Vec<&str> = own.map(String::as_str).collect();
    own.sort_unstable();
    let mut pages = files("docs", "md");
    pages.retain(|page| page != "SUMMARY.md");
    assert_eq!(own, pages, "docs/SUMMARY.md");
    // mdBook takes lines of these forms alone.
    let page = Page::read("docs/SUMMARY.md").text;
    for line in page.lines().filter(|line| !line.is_empty()) {
        let known = ["# ", "- [", "["]
            .iter()
            .any(|start| line.starts_with(start));
        assert!(known, "docs/SUMMARY.md: {line}");
    }
    let text = Page::read("book.toml").text;
    let book: toml::Table = toml::from_str(&text).unwrap();
    assert!(book.contains_key("book"), "{text}");
}

#[test]
fn what_the_site_is_built_from_is_laid_out() {
    let folder = tempfile::tempdir().unwrap();
    let script = repository().join("scripts/site.sh");
    let mut command = Command::new("bash");
    command.arg(script).arg(folder.path()).arg("--no-build");
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("not a git repository") {
        writeln!(
            std::io::stderr(),
            "skipped: 1 test, there is no git repository"
        )
        .unwrap();
        return;
    }
    assert!(output.status.success(), "{errors}");
    let src = folder.path().join("src");
    let summary = std::fs::read_to_string(src.join("SUMMARY.md")).unwrap();
    let chapters = links(&summary);
    let distinct: BTreeSet<&String> = chapters.iter().collect();
    assert_eq!(distinct.len(), chapters.len(), "{summary}");
    let mut faults = Vec::new();
    for chapter in &chapters {
        let Ok(text) = std::fs::read_to_string(src.join(chapter)) else {
            faults.push(format!("SUMMARY.md: there is no {chapter}"));
            continue;
        };
        let from = Path::new(chapter).parent().unwrap();
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            let path = link.split('#').next().unwrap_or_default();
            let is_page = path.ends_with(".md");
            let target = src.join(from).join(path);
            let named = || {
                let target = target.canonicalize().ok()?;
                let inside = target
                    .strip_prefix(src.canonicalize().ok()?)
                    .ok()?
                    .to_owned();
                Some(chapters.iter().any(|other| Path::new(other) == inside))
            };
            // Pages are in the site where the summary names them, other files where they were copied.
            if is_page && named() != Some(true) {
                faults.push(format!("{chapter}: {link}: is no page of the site"));
            } else if !target.exists() {
                faults.push(format!("{chapter}: {link}: is not copied to the site"));
            }
        }
    }
    none(&faults);
}

/// Runs Python in the folder of the notebook, without a window for figures.
fn python(code: &str) -> Option<std::process::Output> {
    let mut command = Command::new("python3");
    command
        .args(["-c", code])
        .current_dir(repository().join("docs"));
    command.env("MPLBACKEND", "Agg").output().ok()
}

#[test]
fn the_notebook_runs_and_has_the_numbers_of_the_page() {
    let libraries = python("import matplotlib, pandas, pyarrow");
    if !libraries.is_some_and(|output| output.status.success()) {
        let text = "skipped: 1 test, there is no python3 with pandas, pyarrow and matplotlib";
        writeln!(std::io::stderr(), "{text}").unwrap();
        return;
    }
    let notebook = Page::read("docs/rows.ipynb").text;
    let notebook: serde_json::Value = serde_json::from_str(&notebook).unwrap();
    let mut program = String::new();
    for cell in notebook["cells"].as_array().unwrap() {
        if cell["cell_type"] == "code" {
            assert_eq!(
                cell["outputs"],
                serde_json::json!([]),
                "outputs are not kept"
            );
            let lines = cell["source"].as_array().unwrap().iter();
            program.extend(lines.map(|line| line.as_str().unwrap()));
            program.push('\n');
        }
    }
    program.push_str(
        "page = pd.read_csv(run / 'report' / 'report.csv')\n\
         page = page[(page.table == 'acceptance') & (page.metric == 'acceptance') & (page.column != 'mean')]\n\
         assert len(page) > 5\n\
         for at in page.itertuples():\n    \
             own = summary.acceptance[(at.column, at.row)]\n    \
             assert abs(own - at.value) < 1e-5, (at, own)\n\
         assert len(curves) > 2 and positions.notna().all(axis=None)\n",
    );
    let output = python(&program).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

/// A value of a table, rounded as pages round it.
fn cell(text: &str) -> String {
    let text = text.trim();
    text.parse::<f64>()
        .map_or(text.to_owned(), |x| x.to_string())
}

#[test]
fn pandas_gives_the_answers_of_sql() {
    let libraries = python("import pandas, pyarrow");
    if !libraries.is_some_and(|output| output.status.success()) {
        let text = "skipped: 1 test, there is no python3 with pandas and pyarrow";
        writeln!(std::io::stderr(), "{text}").unwrap();
        return;
    }
    let page = Page::read("docs/query.md").text;
    let (questions, pandas) = page.split_once("## The same in pandas").unwrap();
    let folder = tempfile::tempdir().unwrap();
    for block in blocks(pandas, "sh") {
        for words in commands(&block.text).iter().filter_map(|w| omnidraft(w)) {
            let mut command = Command::new(env!("CARGO_BIN_EXE_omnidraft"));
            let (out, words) = words.split_last().unwrap();
            let command = command.args(&words[1..]).arg(folder.path().join(out));
            let output = command.current_dir(repository()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    }
    let mut compared = 0;
    let at = serde_json::to_string(folder.path()).unwrap();
    let blocks = blocks(pandas, "python");
    let (first, blocks) = blocks.split_first().unwrap();
    for block in blocks {
        assert!(block.text.lines().count() <= 5, "{}", block.text);
        let program = format!(
            "import os\nos.chdir({at})\n{}{}print(answer.reset_index().to_csv(index=False, sep='|'), end='')",
            first.text, block.text
        );
        let output = python(&program).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let text = String::from_utf8(output.stdout).unwrap();
        let rows = |lines: &str, from: usize| -> Vec<Vec<String>> {
            let lines = lines.lines().skip(from);
            let cells = |line: &str| line.split('|').map(cell).collect();
            lines.map(cells).collect()
        };
        let found = rows(&text, 1);
        // The rows of one of the page's tables, without the bars around them.
        let mut tables = questions.split("<!-- end -->").filter_map(|part| {
            let (_, table) = part.split_once("<!-- query: ")?;
            let lines: Vec<&str> = table
                .lines()
                .skip(3)
                .map(|line| line.trim_matches('|'))
                .collect();
            Some(rows(&lines.join("\n"), 0))
        });
        assert!(
            tables.any(|table| table == found),
            "no answer of the page is\n{text}"
        );
        compared += 1;
    }
    assert_eq!(compared, 3);
}

#[test]
fn paths_in_backticks_exist() {
    let mut faults = Vec::new();
    for page in pages() {
        let of_crate = page.name.starts_with("crates/");
        for span in code_spans(&page.text) {
            let inside = of_crate && begins_with(&span, &INSIDE);
            if !(inside || begins_with(&span, &TOP)) || is_pattern(&span) {
                continue;
            }
            let places = [repository().join(&span), page.folder().join(&span)];
            let made = span.starts_with("target/") || span == TUTORIAL;
            if !made && !places.iter().any(|place| place.exists()) {
                faults.push(format!("{}: `{span}`: there is no such path", page.name));
            }
        }
    }
    none(&faults);
}

/// True if a path begins with one of these folders.
fn begins_with(path: &str, folders: &[&str]) -> bool {
    let first = path.split_once('/').map(|(first, _)| first);
    first.is_some_and(|first| folders.contains(&first))
}

/// True if a text stands for many paths, or is not a path.
fn is_pattern(text: &str) -> bool {
    let odd = |c: char| !(c.is_ascii_alphanumeric() || "._-+=,/".contains(c));
    text.contains(odd) || text.split('/').any(|part| PLACEHOLDERS.contains(&part))
}

/// A command line on a page or in a help text.
struct Example {
    /// Place of the command line.
    place: String,
    /// Its words, the program's name first.
    words: Vec<String>,
}

impl Example {
    fn fault(&self, message: impl Display) -> String {
        format!("{}: {}: {message}", self.place, self.words.join(" "))
    }
}

/// Command lines of this program in the `sh` blocks of all pages.
fn of_pages() -> Vec<Example> {
    let mut examples = Vec::new();
    for page in pages() {
        for block in blocks(&page.text, "sh") {
            let words = commands(&block.text);
            let own = words.iter().filter_map(|words| omnidraft(words));
            examples.extend(own.map(|words| Example {
                place: page.name.clone(),
                words,
            }));
        }
    }
    examples
}

/// The examples of every `--help`.
fn of_help() -> Vec<Example> {
    let mut examples = Vec::new();
    help_of(&Cli::command(), "omnidraft", &mut examples);
    examples
}

fn help_of(command: &clap::Command, name: &str, examples: &mut Vec<Example>) {
    let help = command.get_after_help().map(ToString::to_string);
    let help = help.unwrap_or_default();
    let lines = help.lines().filter(|line| line.starts_with("  omnidraft "));
    for line in lines {
        examples.extend(commands(line).into_iter().map(|words| Example {
            place: format!("{name} --help"),
            words,
        }));
    }
    for inner in command.get_subcommands() {
        help_of(inner, &format!("{name} {}", inner.get_name()), examples);
    }
}

/// Command lines in the comments of experiment files.
fn of_comments() -> Vec<Example> {
    let mut examples = Vec::new();
    for path in experiment_files() {
        let mut script = String::new();
        let mut goes_on = false;
        for line in Page::read(&path).text.lines() {
            let comment = line.strip_prefix('#').unwrap_or_default().trim();
            if goes_on || comment.starts_with("omnidraft ") {
                script.push_str(comment);
                script.push('\n');
                goes_on = comment.ends_with('\\');
            }
        }
        examples.extend(commands(&script).into_iter().map(|words| Example {
            place: path.clone(),
            words,
        }));
    }
    examples
}

#[test]
fn command_lines_are_ones_that_the_program_takes() {
    let (pages, help, comments) = (of_pages(), of_help(), of_comments());
    assert!(pages.len() > 30, "only {} on pages", pages.len());
    assert!(help.len() > 20, "only {} in help texts", help.len());
    assert!(comments.len() > 15, "only {} in comments", comments.len());
    let mut faults = Vec::new();
    for example in pages.into_iter().chain(help).chain(comments) {
        if let Err(error) = Cli::try_parse_from(&example.words) {
            use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
            if !matches!(error.kind(), DisplayHelp | DisplayVersion) {
                faults.push(example.fault(error));
            }
            continue;
        }
        for path in missing(&example.words) {
            faults.push(example.fault(format!("there is no {path}")));
        }
        if let Err(message) = plans(&example.words) {
            faults.push(example.fault(message));
        }
    }
    none(&faults);
}

/// Files of the repository that a command line reads and that do not exist.
fn missing(words: &[String]) -> Vec<&String> {
    let publishes = words.get(1).is_some_and(|word| word == "publish");
    let written = |i: usize| {
        let before = i.checked_sub(1).and_then(|before| words.get(before));
        before.is_some_and(|before| WRITTEN.contains(&before.as_str()))
            || (publishes && i + 1 == words.len())
    };
    let is_missing = |(i, word): &(usize, &String)| {
        begins_with(word, &TOP)
            && !written(*i)
            && *word != TUTORIAL
            && !is_pattern(word)
            && !repository().join(word).exists()
    };
    let all = words.iter().enumerate();
    all.filter(is_missing).map(|(_, word)| word).collect()
}

/// Loads the experiment of a command line, with its options.
fn plans(words: &[String]) -> Result<(), String> {
    let matches = Cli::command().try_get_matches_from(words);
    let matches = matches.map_err(|e| e.to_string())?;
    let Some((command, own)) = matches.subcommand() else {
        return Ok(());
    };
    let file = own.try_get_one::<PathBuf>("file").ok().flatten();
    let wanted = |file: &&PathBuf| {
        let known = file.starts_with("experiments") && file.as_path() != Path::new(TUTORIAL);
        known && file.extension().is_some_and(|ending| ending == "toml")
    };
    let Some(file) = file.filter(wanted) else {
        return Ok(());
    };
    let includes = many::<PathBuf>(own, "includes");
    let options = LoadOptions {
        overrides: many(own, "overrides"),
        extra_includes: includes.iter().map(|i| repository().join(i)).collect(),
    };
    let plan = Plan::load(&repository().join(file), &options).map_err(|e| e.to_string())?;
    let stage = own.try_get_one::<String>("stage").ok().flatten();
    if command == "job" {
        let cell = own.get_one::<String>("cell");
        let mut jobs = plan.jobs.iter().map(|job| &job.config);
        return match jobs.any(|job| Some(&job.cell) == cell && Some(&job.stage) == stage) {
            true => Ok(()),
            false => Err("the experiment has no such job".to_owned()),
        };
    }
    let only = many::<String>(own, "only");
    let pairs: Option<Vec<(&str, &str)>> = only.iter().map(|text| text.split_once('=')).collect();
    let pairs = pairs.ok_or("--only takes AXIS=VALUE")?;
    let plan = plan.only(&pairs).map_err(|e| e.to_string())?;
    if let Some(stage) = stage {
        plan.stage(stage).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The values of an argument that may be repeated.
fn many<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Vec<T> {
    let values = matches.try_get_many::<T>(name).ok().flatten();
    values.into_iter().flatten().cloned().collect()
}

#[test]
fn every_crate_says_what_it_is_for() {
    let readme = |name: &String| format!("crates/{name}/README.md");
    let mut missing: Vec<String> = folders("crates").iter().map(readme).collect();
    missing.retain(|path| !repository().join(path).is_file());
    none(&missing);
}

#[test]
fn packages_on_pages_exist() {
    let crates = folders("crates");
    let mut faults = Vec::new();
    for page in pages() {
        let scripts = blocks(&page.text, "sh");
        let all = scripts.iter().flat_map(|block| commands(&block.text));
        for words in all.filter(|words| words.first().is_some_and(|word| word == "cargo")) {
            let named = package(&words).filter(|name| name.as_str() != "CRATE");
            if named.is_some_and(|name| !crates.contains(name)) {
                faults.push(format!("{}: {}: no such crate", page.name, words.join(" ")));
            }
        }
    }
    none(&faults);
}

#[test]
fn the_configuration_page_is_that_of_this_program() {
    let page = Page::read("docs/configuration.md").text;
    let made = experiment::reference::markdown();
    let mut lines = page.lines().zip(made.lines()).enumerate();
    let first = lines.find(|(_, (here, there))| here != there);
    let first = first.map(|(i, (here, there))| format!("line {}:\n- {here}\n+ {there}", i + 1));
    assert!(
        page == made,
        "docs/configuration.md is stale; write it again: omnidraft config > docs/configuration.md\n{}",
        first.unwrap_or_else(|| "its end differs".to_owned())
    );
}

#[test]
fn the_first_page_is_short() {
    let page = Page::read("README.md").text;
    let lines = page.lines().count();
    assert!(lines <= 100, "README.md has {lines} lines, more than 100");
    // Comments are ignored.
    for line in page.lines().filter(|line| !line.starts_with("<!--")) {
        let columns = line.chars().count();
        assert!(columns <= 120, "README.md: {columns} columns: {line}");
    }
    assert!(page.contains("<!-- quote: results/quickstart -->"));
    assert!(page.contains("<!-- end -->"));
}

/// All TOML files below `experiments/`, relative to the repository.
fn experiment_files() -> Vec<String> {
    let mut all = Vec::new();
    let mut waiting = vec!["experiments".to_owned()];
    while let Some(folder) = waiting.pop() {
        let own = files(&folder, "toml");
        all.extend(own.iter().map(|file| format!("{folder}/{file}")));
        let below = folders(&folder);
        waiting.extend(below.iter().map(|name| format!("{folder}/{name}")));
    }
    all.sort();
    all
}

/// Kind of a file below `experiments/`.
enum Kind {
    Experiment,
    /// Included by others, or by `--include`.
    Part,
    /// Recipe of a model.
    Recipe,
    /// The paper's numbers.
    Paper,
}

fn kind(path: &str) -> Kind {
    match path.split('/').nth(1) {
        Some("common" | "models") => Kind::Part,
        Some("recipes") => Kind::Recipe,
        Some("paper") => Kind::Paper,
        _ => Kind::Experiment,
    }
}

#[test]
fn every_file_of_the_experiments_loads() {
    let mut faults = Vec::new();
    let mut fault = |path: &str, error: &dyn Display| faults.push(format!("{path}: {error}"));
    let options = LoadOptions::default();
    for path in experiment_files() {
        let file = repository().join(&path);
        match kind(&path) {
            Kind::Experiment => match Plan::load(&file, &options) {
                Err(error) => fault(&path, &error),
                Ok(plan) => {
                    let stem = file.file_stem().unwrap().to_string_lossy();
                    // Tables on recorded and on real targets have other names than those of the
                    // repository's models.
                    let name = match path.split('/').nth(1) {
                        Some(folder @ ("trace" | "real")) => format!("{folder}-{stem}"),
                        _ => stem.into_owned(),
                    };
                    if plan.experiment.name != name {
                        fault(&path, &"its name is not that of the file");
                    }
                }
            },
            Kind::Recipe => {
                if let Err(error) = pretrain::Recipe::load(&file).map_err(anyhow::Error::from) {
                    fault(&path, &format!("{error:#}"));
                }
            }
            Kind::Paper => {
                if let Err(error) = load_paper(&file) {
                    fault(&path, &error);
                }
            }
            Kind::Part => {}
        }
    }
    none(&faults);
}

#[test]
fn parts_of_experiments_are_used() {
    let mut included = BTreeSet::new();
    let mut words = String::new();
    for page in pages() {
        words.push_str(&page.text);
    }
    for path in experiment_files() {
        let page = Page::read(&path);
        for name in includes(&page.text) {
            let file = page.folder().join(name).canonicalize();
            included.extend(file.ok());
        }
        words.push_str(&page.text);
    }
    let mut faults = Vec::new();
    for path in experiment_files() {
        let file = repository().join(&path).canonicalize().unwrap();
        let is_part = matches!(kind(&path), Kind::Part);
        if is_part && !included.contains(&file) && !words.contains(&path) {
            faults.push(format!("{path}: nothing includes it and no page names it"));
        }
    }
    none(&faults);
}

/// The files that a TOML file includes.
fn includes(text: &str) -> Vec<String> {
    let table: toml::Table = toml::from_str(text).unwrap();
    let list = table.get("include").and_then(toml::Value::as_array);
    let names = list.into_iter().flatten().filter_map(toml::Value::as_str);
    names.map(str::to_owned).collect()
}

#[test]
fn one_include_swaps_the_models_for_the_papers() {
    let mut faults = Vec::new();
    for (file, place) in [
        ("paper.toml", "hf:"),
        ("paper-torch.toml", "hf:"),
        ("paper-stand-ins.toml", "runs/stand-ins/"),
    ] {
        swapped_by(file, place, &mut faults);
    }
    none(&faults);
    // Every target has a stand-in.
    let models = |file: &str| {
        let path = repository().join("experiments/models").join(file);
        let table: toml::Table = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let targets = table["models"]["targets"].as_table().unwrap();
        targets.keys().cloned().collect::<BTreeSet<_>>()
    };
    let published = &models("paper-torch.toml") | &models("paper-qwen2.5-torch.toml");
    assert_eq!(published, models("paper-stand-ins.toml"));
}

/// Loads all experiments with the models of a file, whose paths begin with `place`.
fn swapped_by(file: &str, place: &str, faults: &mut Vec<String>) {
    let options = LoadOptions {
        extra_includes: vec![repository().join("experiments/models").join(file)],
        ..LoadOptions::default()
    };
    for path in experiment_files() {
        if !matches!(kind(&path), Kind::Experiment) {
            continue;
        }
        match Plan::load(&repository().join(&path), &options) {
            Err(error) => faults.push(error.to_string()),
            Ok(plan) => {
                let mut drafters = plan.jobs.iter().map(|job| &job.config.models.drafter.path);
                // A file that compares drafters names the other ones itself.
                if !drafters.any(|path| path.to_string_lossy().starts_with(place)) {
                    faults.push(format!("{path}: keeps a drafter of its own"));
                }
            }
        }
    }
}

#[test]
fn snippets_are_toml_and_the_tutorial_loads() {
    let mut faults = Vec::new();
    for page in pages() {
        for block in blocks(&page.text, "toml") {
            if let Err(error) = toml::from_str::<toml::Table>(&block.text) {
                faults.push(format!("{}: {error}\n{}", page.name, block.text));
            }
        }
    }
    none(&faults);
    let snippets = blocks(&Page::read(TUTORIAL_PAGE).text, "toml");
    let whole = |text: &str| text.contains("\nname = ") && text.contains("[stage.");
    let tutorial = snippets.iter().find(|block| whole(&block.text));
    let tutorial = tutorial.expect("the tutorial shows a whole experiment");
    let folder = tempfile::tempdir().unwrap();
    for part in ["common", "models"] {
        std::fs::create_dir(folder.path().join(part)).unwrap();
        for file in files(&format!("experiments/{part}"), "toml") {
            let from = repository().join("experiments").join(part).join(&file);
            std::fs::copy(from, folder.path().join(part).join(file)).unwrap();
        }
    }
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, &tutorial.text).unwrap();
    let plan = Plan::load(&file, &LoadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    // One target, two tasks, two seeds, two stages.
    assert_eq!(plan.jobs.len(), 8);
}
