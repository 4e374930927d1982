//! How soon the steps of a run use the quota, from its table.

/// The part of what is possible that every second of a settled step has.
const SETTLED: f64 = 0.9;

/// One step of a part of the run.
struct Step {
    name: String,
    version: String,
    /// Of each second: what all Envoys admitted, of the quota, or of their demand if that is less.
    used: Vec<f64>,
    second: Option<String>,
    quota: f64,
    demand: f64,
    admitted: f64,
}

impl Step {
    fn end_second(&mut self) {
        if self.second.take().is_some() {
            let possible = self.quota.min(self.demand);
            self.used.push(if possible > 0.0 { self.admitted / possible } else { 0.0 });
            (self.demand, self.admitted) = (0.0, 0.0);
        }
    }

    /// The seconds until the first one from which on all of them are settled, and the mean of those. `None` if
    /// the last one is not.
    fn settled(&self) -> Option<(usize, f64)> {
        let after = self.used.iter().rposition(|used| *used < SETTLED).map_or(0, |last| last + 1);
        let rest = &self.used[after..];
        (!rest.is_empty()).then(|| (after, rest.iter().sum::<f64>() / rest.len() as f64))
    }
}

/// A table in Markdown of the steps in rows of `acceptance.csv`.
pub(super) fn table(rows: &str) -> String {
    let mut steps: Vec<Step> = Vec::new();
    for row in rows.lines() {
        let fields: Vec<&str> = row.split(',').collect();
        let [_, part, step, version, quota, second, _, demand, admitted, ..] = fields[..] else {
            panic!("{row}")
        };
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let name = format!("{part}, {step}");
        if steps.last().is_none_or(|last| last.name != name) {
            steps.iter_mut().last().into_iter().for_each(Step::end_second);
            steps.push(Step {
                name,
                version: version.to_owned(),
                used: Vec::new(),
                second: None,
                quota: number(quota),
                demand: 0.0,
                admitted: 0.0,
            });
        }
        let last = steps.last_mut().expect("it was added");
        if last.second.as_deref() != Some(second) {
            last.end_second();
            last.second = Some(second.to_owned());
        }
        last.demand += number(demand);
        last.admitted += number(admitted);
    }
    steps.iter_mut().last().into_iter().for_each(Step::end_second);
    let mut text = "| step | Envoy | settled after, s | used then, % |\n".to_owned();
    text += "| --- | --- | --- | --- |\n";
    for step in &steps {
        let (after, used) = match step.settled() {
            Some((after, used)) => (after.to_string(), format!("{:.1}", 100.0 * used)),
            None => ("-".to_owned(), "-".to_owned()),
        };
        text += &format!("| {} | {} | {after} | {used} |\n", step.name, step.version);
    }
    text
}

#[test]
fn a_step_settles_with_its_last_low_second() {
    let row = |step: &str, second: usize, demand: [u32; 2], admitted: [u32; 2]| {
        let rows = demand.into_iter().zip(admitted).enumerate();
        let rows = rows.map(|(envoy, (demand, admitted))| {
            format!(
                "abc,steps,{step},1.40.0,300,{second},{},{demand},{admitted},0,1.0\n",
                envoy + 1
            )
        });
        rows.collect::<String>()
    };
    let rows = [
        row("A", 0, [400, 100], [100, 100]),
        row("A", 1, [400, 100], [200, 100]),
        row("A", 2, [400, 100], [169, 100]),
        row("A", 3, [400, 100], [180, 90]),
        row("A", 4, [400, 100], [210, 90]),
        row("E", 5, [400, 100], [0, 0]),
        row("F", 6, [50, 50], [50, 49]),
    ];
    let expected = "| step | Envoy | settled after, s | used then, % |\n\
                    | --- | --- | --- | --- |\n\
                    | steps, A | 1.40.0 | 3 | 95.0 |\n\
                    | steps, E | 1.40.0 | - | - |\n\
                    | steps, F | 1.40.0 | 0 | 99.0 |\n";
    assert_eq!(table(&rows.concat()), expected);
}
