//! Pages and figures for inspection.

use crate::support;

use report::write_report;
use support::Experiment;

/// Writes pages for inspection: `cargo test -p report --test all figures -- --ignored`.
#[test]
#[ignore = "for looking at the pages"]
fn pages_to_look_at() {
    let experiments = [
        Experiment::table1(),
        Experiment::quickstart(),
        Experiment::target_drift(),
        Experiment::sweep(),
    ];
    for experiment in experiments {
        let root = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
        let root = root.join("pages").join(experiment.name);
        let _ = std::fs::remove_dir_all(&root);
        experiment.write(&root);
        let started = std::time::Instant::now();
        let summary = write_report(&root).unwrap();
        println!("{}\n{}", summary.markdown, summary.warnings.join("\n"));
        println!("{} in {:?}", root.display(), started.elapsed());
    }
}
