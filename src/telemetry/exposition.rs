//! Prometheus text: families of samples, written in the exposition format 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write;

/// A page of metrics while it is written.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

impl Exposition {
    /// Starts a family; all its samples must follow before the next one starts.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One sample of the present family.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.text.push_str(name);
        for (position, (label, text)) in labels.iter().enumerate() {
            let open = if position == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{open}{label}=\"");
            for c in text.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    _ => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {value}");
    }

    /// One sample of the present family, without labels, that is no whole number.
    pub fn decimal(&mut self, name: &str, value: f64) {
        let _ = writeln!(self.text, "{name} {value}");
    }

    /// A family of one sample without labels.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// The finished page.
    pub fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_cannot_break_out_of_their_quotes() {
        let mut page = Exposition::default();
        page.family("weir_x_total", "counter", "Things.");
        page.sample("weir_x_total", &[("a", "1\"\n\\"), ("b", "")], 3);
        page.single("weir_y", "gauge", "One.", 4);
        assert_eq!(
            page.finish(),
            "# HELP weir_x_total Things.\n# TYPE weir_x_total counter\n\
             weir_x_total{a=\"1\\\"\\n\\\\\",b=\"\"} 3\n\
             # HELP weir_y One.\n# TYPE weir_y gauge\nweir_y 4\n"
        );
    }
}
