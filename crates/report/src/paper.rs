//! The paper's numbers as data: one TOML file a table.

use crate::ReportError;
use results::Metric;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Axis values that single out numbers.
pub type Where = BTreeMap<String, String>;

/// Numbers and claims of one table or figure of the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperData {
    /// Where they stand: `Table 1`.
    pub source: String,
    /// What a reader has to know of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Our axis values and arms in the paper's words.
    #[serde(default)]
    pub names: BTreeMap<String, String>,
    /// Quantities that are no metric of ours, with their meaning and unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
    /// The numbers.
    #[serde(default)]
    pub value: Vec<PaperValue>,
    /// What the paper says about them.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// The numbers of one cell of the paper's table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PaperValue {
    /// Which cell.
    #[serde(rename = "where", default)]
    pub at: Where,
    /// Metric (or one of [`PaperData::extra`]) and value.
    #[serde(flatten)]
    pub numbers: BTreeMap<String, f64>,
}

/// A sentence of the paper that our numbers can hold against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim in our words.
    pub text: String,
    /// Where it applies; everywhere by default.
    #[serde(rename = "where", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub at: Where,
    /// One thing has more of a metric than another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// A metric grows along an axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trend: Option<Trend>,
}

/// `above` has more of `metric` than `below`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Metric compared.
    pub metric: String,
    /// Axis of the two values.
    #[serde(default = "arm")]
    pub axis: String,
    /// The value with more.
    pub above: String,
    /// The value with less.
    pub below: String,
}

/// `metric` grows along `values` of `axis`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trend {
    /// Metric compared.
    pub metric: String,
    /// Axis of the values.
    #[serde(default = "arm")]
    pub axis: String,
    /// Values from least to most.
    pub values: Vec<String>,
}

/// Whether two values of an axis are one: `1` and `1.0` are.
fn same(a: &str, b: &str) -> bool {
    let numbers = || a.parse::<f64>().ok().zip(b.parse::<f64>().ok());
    a == b || numbers().is_some_and(|(a, b)| a == b)
}

fn arm() -> String {
    "arm".to_owned()
}

/// Reads a file of the paper's numbers.
///
/// # Errors
/// [`ReportError::Io`], [`ReportError::Paper`] with file, key and what is wrong with it.
pub fn load(path: &Path) -> Result<PaperData, ReportError> {
    let text = std::fs::read_to_string(path).map_err(|source| ReportError::io(path, source))?;
    let wrong = |key: String, message: String| ReportError::Paper {
        path: path.to_path_buf(),
        key,
        message,
    };
    let data: PaperData = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| {
            let before = text.get(..span.start).unwrap_or_default();
            before.matches('\n').count() + 1
        });
        wrong(format!("line {line}"), error.message().to_owned())
    })?;
    data.check().map_err(|(key, message)| wrong(key, message))?;
    Ok(data)
}

impl PaperData {
    /// The key that is wrong and why.
    fn check(&self) -> Result<(), (String, String)> {
        let metric = |key: String, name: &str| match Metric::parse(name) {
            Some(_) => Ok(()),
            None => Err((key, format!("`{name}` is no metric"))),
        };
        for (index, value) in self.value.iter().enumerate() {
            for (name, number) in &value.numbers {
                let key = format!("value[{index}].{name}");
                if !self.extra.contains_key(name) {
                    metric(key.clone(), name)?;
                }
                if !number.is_finite() {
                    return Err((key, "not a number".to_owned()));
                }
            }
        }
        for (index, claim) in self.claim.iter().enumerate() {
            let key = |rest: &str| format!("claim[{index}].{rest}");
            if claim.order.is_some() && claim.trend.is_some() {
                return Err((key("trend"), "a claim is an order or a trend".to_owned()));
            }
            if let Some(order) = &claim.order {
                metric(key("order.metric"), &order.metric)?;
            }
            if let Some(trend) = &claim.trend {
                metric(key("trend.metric"), &trend.metric)?;
                if trend.values.len() < 2 {
                    return Err((key("trend.values"), "fewer than two values".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// The paper's value of a metric in a table cell: of the entries whose `where` agrees with the
    /// cell everywhere, the one that says most.
    pub fn value(&self, at: &Where, metric: Metric) -> Option<f64> {
        let agrees = |value: &&PaperValue| {
            value.numbers.contains_key(metric.name())
                && value
                    .at
                    .iter()
                    .all(|(axis, v)| at.get(axis).is_some_and(|own| same(own, v)))
        };
        let found = self.value.iter().filter(agrees);
        let best = found.max_by_key(|value| value.at.len())?;
        best.numbers.get(metric.name()).copied()
    }

    /// An axis value in the paper's words, ours where it has none.
    pub fn name<'a>(&'a self, value: &'a str) -> &'a str {
        self.names.get(value).map_or(value, String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(text: &str) -> Result<PaperData, ReportError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table.toml");
        std::fs::write(&path, text).unwrap();
        load(&path)
    }

    #[test]
    fn the_most_specific_value_counts() {
        let data = data(concat!(
            "source = \"Table 5\"\n",
            "[[value]]\nwhere = { arm = \"L_DM\" }\nacceptance = 0.3\n",
            "[[value]]\nwhere = { arm = \"L_DM\", k = \"4\" }\nacceptance = 0.4\n",
        ))
        .unwrap();
        let at = |pairs: &[(&str, &str)]| -> Where {
            let own = |(a, v): &(&str, &str)| ((*a).to_owned(), (*v).to_owned());
            pairs.iter().map(own).collect()
        };
        let value = |pairs| data.value(&at(pairs), Metric::Acceptance);
        assert_eq!(value(&[("arm", "L_DM"), ("k", "3")]), Some(0.3));
        assert_eq!(value(&[("arm", "L_DM"), ("k", "4")]), Some(0.4));
        assert_eq!(value(&[("k", "4")]), None);
        assert_eq!(data.value(&at(&[("arm", "L_DM")]), Metric::Speedup), None);
    }

    #[test]
    fn mistakes_are_named_with_file_and_key() {
        let message = |text: &str| data(text).unwrap_err().to_string();
        let unknown = message("source = \"T\"\n[[value]]\nacceptanse = 0.1\n");
        assert!(
            unknown.contains("table.toml: value[0].acceptanse"),
            "{unknown}"
        );
        let order = "source = \"T\"\n[[claim]]\ntext = \"x\"\n[claim.order]\nmetric = \"speed\"\nabove = \"a\"\nbelow = \"b\"\n";
        assert!(message(order).contains("claim[0].order.metric: `speed` is no metric"));
        let line = message("source = \"T\"\nsauce = 1\n");
        assert!(line.contains("line 2"), "{line}");
    }
}
