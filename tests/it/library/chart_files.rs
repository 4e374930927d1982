//! The charts that `make bench` writes.

use std::fs;

use weir_charts::ChartFile;

#[path = "../../../benches/suite/chart_files.rs"]
mod files;

#[test]
fn charts_of_earlier_runs_are_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let chart = |name, svg: &str| ChartFile { name, svg: svg.to_owned() };
    // Each run: its charts, and then the names and contents in the folder.
    let runs = [
        (
            vec![chart("cpu.svg", "1"), chart("peers.svg", "1")],
            vec![("cpu.svg", "1"), ("figures.csv", "csv"), ("peers.svg", "1")],
        ),
        (vec![chart("cpu.svg", "2")], vec![("cpu.svg", "2"), ("figures.csv", "csv")]),
        (vec![], vec![("figures.csv", "csv")]),
    ];
    fs::write(folder.path().join("figures.csv"), "csv").expect("a file");
    for (charts, expected) in runs {
        files::write(folder.path(), &charts).expect("the folder can be written");
        let mut found = Vec::new();
        for entry in fs::read_dir(folder.path()).expect("the folder") {
            let path = entry.expect("a file").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
            found.push((name, fs::read_to_string(&path).expect("a text")));
        }
        found.sort();
        let found: Vec<_> =
            found.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(found, expected);
    }
}
