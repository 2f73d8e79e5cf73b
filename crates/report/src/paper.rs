//! The paper's numbers as data, one TOML file per table.

use crate::ReportError;
use results::{Metric, StepLatency};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The paper's Table 1, from which the cost of a round is derived.
const TABLE_1: (&str, &str) = (
    "experiments/paper/table1.toml",
    include_str!("../../../experiments/paper/table1.toml"),
);

/// Axis values that single out numbers.
pub type Where = BTreeMap<String, String>;

/// Numbers and claims of one table or figure of the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperData {
    /// Name of the table or figure: `Table 1`.
    pub source: String,
    /// Note for the reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The paper's words for our axis values and arms.
    #[serde(default)]
    pub names: BTreeMap<String, String>,
    /// Quantities that are not among our metrics, with their meaning and unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
    /// The numbers.
    #[serde(default)]
    pub value: Vec<PaperValue>,
    /// The paper's statements about them.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// The numbers of one cell of the paper's table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PaperValue {
    /// Coordinates of the cell.
    #[serde(rename = "where", default)]
    pub at: Where,
    /// Metric (or one of [`PaperData::extra`]) and value.
    #[serde(flatten)]
    pub numbers: BTreeMap<String, f64>,
}

/// A statement of the paper that our numbers can support or contradict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim in our words.
    pub text: String,
    /// Coordinates for which it is made; everywhere by default.
    #[serde(rename = "where", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub at: Where,
    /// Statement that one side has more of a metric than the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// Statement that a metric grows along an axis.
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
    /// Values in ascending order of the metric.
    pub values: Vec<String>,
}

/// True if two values of an axis are equal, such as `1` and `1.0`.
fn same(a: &str, b: &str) -> bool {
    let numbers = || a.parse::<f64>().ok().zip(b.parse::<f64>().ok());
    a == b || numbers().is_some_and(|(a, b)| a == b)
}

/// The place under our names: once for each of the names that stand for one of its values.
fn places(at: &Where, owners: &Owners) -> Vec<Where> {
    let mut all = vec![Where::new()];
    for (axis, value) in at {
        let one = [value.as_str()];
        let own = owners.get(value.as_str()).map_or(&one[..], Vec::as_slice);
        let with = |place: Where| {
            own.iter().map(move |own| {
                let mut place = place.clone();
                place.insert(axis.clone(), (*own).to_owned());
                place
            })
        };
        all = all.into_iter().flat_map(with).collect();
    }
    all
}

/// Our names of each of the paper's.
type Owners<'a> = BTreeMap<&'a str, Vec<&'a str>>;

fn arm() -> String {
    "arm".to_owned()
}

/// Reads a file of the paper's numbers.
///
/// # Errors
/// [`ReportError::Io`], [`ReportError::Paper`] with file, key and reason.
pub fn load(path: &Path) -> Result<PaperData, ReportError> {
    let text = std::fs::read_to_string(path).map_err(|source| ReportError::io(path, source))?;
    parse(path, &text)
}

/// Draft length k of the paper's Table 1.
const K: f64 = 4.0;

/// Overhead of a round in the paper's Table 1, in target steps, beyond the target's own step and
/// the drafter's.
///
/// An arm without merging has 1 + 4 times its acceptance rate tokens per round, so that this number
/// over its speedup is the cost of a round. The overhead is the part that the steps of Table 8 do
/// not explain, mean over cells.
///
/// # Errors
/// A file of the paper's numbers without the required entries.
pub fn implied_overhead() -> Result<f64, ReportError> {
    let price = implied_price()?;
    Ok(price - 1.0 - K * StepLatency::paper().ratio())
}

/// Cost of a round in the paper's Table 1, in target steps.
pub fn implied_price() -> Result<f64, ReportError> {
    let path = Path::new(TABLE_1.0);
    let table = parse(path, TABLE_1.1)?;
    let prices = table.value.iter().filter_map(|value| {
        let merges_nothing = matches!(value.at.get("arm")?.as_str(), "SpD_DM" | "L_DM");
        let number = |metric: Metric| value.numbers.get(metric.name());
        let (rate, speedup) = (number(Metric::Acceptance)?, number(Metric::Speedup)?);
        merges_nothing.then(|| (1.0 + K * rate) / speedup)
    });
    let prices: Vec<f64> = prices.collect();
    if prices.is_empty() {
        return Err(ReportError::Paper {
            path: path.to_path_buf(),
            key: "value".to_owned(),
            message: "no acceptance and speedup of SpD_DM and L_DM".to_owned(),
        });
    }
    Ok(prices.iter().sum::<f64>() / prices.len() as f64)
}

fn parse(path: &Path, text: &str) -> Result<PaperData, ReportError> {
    let wrong = |key: String, message: String| ReportError::Paper {
        path: path.to_path_buf(),
        key,
        message,
    };
    let data: PaperData = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| {
            let before = text.get(..span.start).unwrap_or_default();
            before.matches('\n').count() + 1
        });
        wrong(format!("line {line}"), error.message().to_owned())
    })?;
    data.check().map_err(|(key, message)| wrong(key, message))?;
    Ok(data)
}

impl Claim {
    /// Metric, axis, and values of the axis in ascending order of the metric; `None` if the claim
    /// has no rule.
    pub fn rule(&self) -> Option<(&str, &str, Vec<&str>)> {
        match (&self.order, &self.trend) {
            (Some(order), _) => {
                let steps = vec![order.below.as_str(), order.above.as_str()];
                Some((&order.metric, &order.axis, steps))
            }
            (None, Some(trend)) => {
                let steps = trend.values.iter().map(String::as_str).collect();
                Some((&trend.metric, &trend.axis, steps))
            }
            (None, None) => None,
        }
    }
}

impl PaperData {
    /// The wrong key with the reason.
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

    /// The same data for an experiment with other names: `names` maps its own names to those in
    /// this data. Several own names may stand for the same name: values and places of claims are
    /// then repeated for each, while the sides of an order and the steps of a trend take the first
    /// one.
    ///
    /// # Errors
    /// A name that is not in this data.
    pub fn renamed(mut self, names: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut owners = Owners::new();
        for (own, name) in names {
            owners.entry(name).or_default().push(own);
        }
        if let Some(name) = owners.keys().find(|name| !self.has(name)) {
            return Err((*name).to_owned());
        }
        // All names at once: ours may be the paper's names of others.
        let values = self.value.iter().flat_map(|value| {
            let places = places(&value.at, &owners).into_iter();
            places.map(|at| PaperValue {
                at,
                ..value.clone()
            })
        });
        self.value = values.collect();
        let claims = self.claim.iter().flat_map(|claim| {
            let places = places(&claim.at, &owners).into_iter();
            places.map(|at| Claim {
                at,
                ..claim.clone()
            })
        });
        self.claim = claims.collect();
        for claim in &mut self.claim {
            let sides = claim.order.iter_mut();
            let sides = sides.flat_map(|order| [&mut order.above, &mut order.below]);
            let steps = claim.trend.iter_mut().flat_map(|trend| &mut trend.values);
            for side in sides.chain(steps) {
                if let Some(own) = owners.get(side.as_str()) {
                    own[0].clone_into(side);
                }
            }
        }
        let words = |(name, own): (&&str, &Vec<&str>)| {
            let words = self.names.get(*name)?;
            let named = own.iter().map(|own| ((*own).to_owned(), words.clone()));
            Some(named.collect::<Vec<_>>())
        };
        let named: Vec<_> = owners.iter().filter_map(words).flatten().collect();
        self.names.extend(named);
        Ok(self)
    }

    /// True if the name is a value of an axis in this data, or has words.
    fn has(&self, name: &str) -> bool {
        let values = self.value.iter().map(|value| &value.at);
        let claims = self.claim.iter().map(|claim| &claim.at);
        let mut places = values.chain(claims).flat_map(|at| at.values());
        let sides = |claim: &Claim| {
            let mut order = claim.order.iter();
            let mut trend = claim.trend.iter().flat_map(|trend| &trend.values);
            order.any(|order| order.above == name || order.below == name)
                || trend.any(|value| value == name)
        };
        self.names.contains_key(name)
            || places.any(|value| value == name)
            || self.claim.iter().any(sides)
    }

    /// The paper's value of a metric in a table cell: of the entries that agree with the cell in
    /// all their coordinates, the one with the most. Counted and modelled speedups are compared
    /// with the paper's speedup, which has no others.
    pub fn value(&self, at: &Where, metric: Metric) -> Option<f64> {
        let name = match metric {
            Metric::CountedSpeedup | Metric::ModelledSpeedup | Metric::ImpliedSpeedup => {
                Metric::Speedup.name()
            }
            other => other.name(),
        };
        let agrees = |value: &&PaperValue| {
            value.numbers.contains_key(name)
                && value
                    .at
                    .iter()
                    .all(|(axis, v)| at.get(axis).is_some_and(|own| same(own, v)))
        };
        let found = self.value.iter().filter(agrees);
        let best = found.max_by_key(|value| value.at.len())?;
        best.numbers.get(name).copied()
    }

    /// The paper's word for an axis value; ours if it has none.
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

    fn at(pairs: &[(&str, &str)]) -> Where {
        let own = |(a, v): &(&str, &str)| ((*a).to_owned(), (*v).to_owned());
        pairs.iter().map(own).collect()
    }

    #[test]
    fn the_most_specific_value_counts() {
        let data = data(concat!(
            "source = \"Table 5\"\n",
            "[[value]]\nwhere = { arm = \"L_DM\" }\nacceptance = 0.3\n",
            "[[value]]\nwhere = { arm = \"L_DM\", k = \"4\" }\nacceptance = 0.4\n",
        ))
        .unwrap();
        let value = |pairs| data.value(&at(pairs), Metric::Acceptance);
        assert_eq!(value(&[("arm", "L_DM"), ("k", "3")]), Some(0.3));
        assert_eq!(value(&[("arm", "L_DM"), ("k", "4")]), Some(0.4));
        assert_eq!(value(&[("k", "4")]), None);
        assert_eq!(data.value(&at(&[("arm", "L_DM")]), Metric::Speedup), None);
    }

    #[test]
    fn speeds_without_a_clock_stand_beside_the_papers() {
        let text = "source = \"Table 1\"\n[[value]]\nwhere = { arm = \"L_DM\" }\nspeedup = 1.5\n";
        let data = data(text).unwrap();
        let at = at(&[("arm", "L_DM")]);
        for metric in [
            Metric::Speedup,
            Metric::CountedSpeedup,
            Metric::ModelledSpeedup,
            Metric::ImpliedSpeedup,
        ] {
            assert_eq!(data.value(&at, metric), Some(1.5));
        }
        assert_eq!(data.value(&at, Metric::SpeedupEndToEnd), None);
    }

    #[test]
    fn a_round_of_table_1_costs_more_than_its_steps() {
        let price = implied_price().unwrap();
        assert!((price - 1.466).abs() < 5e-4, "{price}");
        let overhead = implied_overhead().unwrap();
        assert!((overhead - 0.181).abs() < 5e-4, "{overhead}");
        // Table 5 has the same arms with three draft tokens: its rounds have the cost that this
        // derivation gives.
        let table = load(Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../experiments/paper/table5.toml"
        )));
        let table = table.unwrap();
        let three = table.value.iter().filter(|value| {
            let at = |axis: &str| value.at.get(axis).map(String::as_str);
            at("decode.k") == Some("3") && matches!(at("arm"), Some("SpD_DM" | "L_DM"))
        });
        let prices = three.map(|v| (1.0 + 3.0 * v.numbers["acceptance"]) / v.numbers["speedup"]);
        let prices: Vec<f64> = prices.collect();
        let mean = prices.iter().sum::<f64>() / prices.len() as f64;
        let modelled = 1.0 + 3.0 * StepLatency::paper().ratio() + overhead;
        assert!((mean - modelled).abs() < 0.02, "{mean} {modelled}");
    }

    #[test]
    fn other_names_stand_for_the_papers() {
        let data = data(concat!(
            "source = \"Table 4\"\n[names]\nL = \"Llama3-8B\"\n",
            "[[value]]\nwhere = { target = \"L\", arm = \"A\" }\nacceptance = 0.3\n",
            "[[value]]\nwhere = { target = \"Q\", arm = \"A\" }\nacceptance = 0.2\n",
            "[[claim]]\ntext = \"more\"\nwhere = { target = \"L\" }\n",
            "order = { metric = \"acceptance\", above = \"A\", below = \"B\" }\n",
        ))
        .unwrap();
        let names = at(&[("big", "L"), ("bigger", "L"), ("arm", "A")]);
        let ours = data.clone().renamed(&names).unwrap();
        let value = |target| {
            let at = at(&[("target", target), ("arm", "arm")]);
            ours.value(&at, Metric::Acceptance)
        };
        assert_eq!((value("big"), value("bigger")), (Some(0.3), Some(0.3)));
        assert_eq!((value("Q"), value("L")), (Some(0.2), None));
        assert_eq!(ours.name("bigger"), "Llama3-8B");
        let claims: Vec<&str> = ours.claim.iter().map(|c| c.at["target"].as_str()).collect();
        assert_eq!(claims, ["big", "bigger"]);
        assert_eq!(ours.claim[0].order.as_ref().unwrap().above, "arm");
        assert_eq!(
            data.clone().renamed(&at(&[("big", "M")])),
            Err("M".to_owned())
        );
        let swapped = data.renamed(&at(&[("Q", "L"), ("L", "Q")])).unwrap();
        let value = |target| {
            let at = at(&[("target", target), ("arm", "A")]);
            swapped.value(&at, Metric::Acceptance)
        };
        assert_eq!((value("Q"), value("L")), (Some(0.3), Some(0.2)));
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
