//! The figures of synthetic runs.

mod report_support;

use report_support::Run;
use runner::report::write_report;

/// Writes the figures where they can be looked at: `cargo test --test report_figures -- --ignored`.
#[test]
#[ignore = "for looking at the figures"]
fn figures_to_look_at() {
    for run in [Run::quickstart(), Run::table1(), Run::target_drift()] {
        let dir =
            std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{}", run.name));
        let _ = std::fs::remove_dir_all(&dir);
        run.write(&dir);
        let started = std::time::Instant::now();
        let summary = write_report(&dir).unwrap();
        println!("{}\n{:?} in {:?}", summary.markdown, dir, started.elapsed());
    }
}
