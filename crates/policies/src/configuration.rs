//! Policies as a file names them: settings of their own, and pipelines.
//!
//! The file is a map from names to tables, as TOML or JSON gives it. The reader of the text is the caller's.
//!
//! ```toml
//! [masking-5]                       # a policy with settings, under a name of its own
//! policy = "observation-masking"
//! attention_window = 5
//!
//! [folding]                         # without `policy`, the table's name is the policy's
//! keep_last = 30
//!
//! [both]                            # members are policies, or entries of this file
//! pipeline = ["masking-5", "llm-summarizing"]
//!
//! [window]                          # one policy per combination: `window/attention_window=5/polling=1` and so on
//! policy = "observation-masking"
//! grid = { attention_window = [5, 10], polling = [1, 10] }
//! ```

use std::sync::Arc;

use condenser::{Failure, NoPlan, Plan, Policy, Requirement, State};
use serde_json::{Map, Value};

use crate::pipeline::Pipeline;
use crate::registry::{BadSetting, PolicyInfo, nearest};

/// Most members of members of a pipeline.
const MAX_DEPTH: usize = 16;
/// Most combinations of a grid.
const MAX_GRID: usize = 1000;

/// What is wrong with a file of policies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{entry}`: {problem}")]
pub struct ConfigurationError {
    /// The entry of the file.
    pub entry: String,
    /// What is wrong, and what is expected instead.
    pub problem: String,
}

/// The policies that a file names, in its order, each under its own name.
///
/// # Errors
/// [`ConfigurationError`] names the entry and the key, and says what is allowed.
pub fn configure(list: &[PolicyInfo], file: &Map<String, Value>) -> Result<Vec<Arc<dyn Policy>>, ConfigurationError> {
    let mut entries = Map::new();
    for (name, table) in file {
        match table.get("grid") {
            Some(grid) => entries.extend(combinations(name, table, grid)?),
            None => {
                entries.insert(name.clone(), table.clone());
            }
        }
    }
    let reader = Reader { list, file: &entries };
    entries.keys().map(|name| reader.entry(name, 0)).collect()
}

/// The entries of a grid, one per combination of its values, the last setting varying fastest.
fn combinations(name: &str, table: &Value, grid: &Value) -> Result<Map<String, Value>, ConfigurationError> {
    let fail = |problem: String| ConfigurationError { entry: name.chars().take(60).collect(), problem };
    let lists = |grid: &Map<String, Value>| -> Option<Vec<(String, Vec<Value>)>> {
        let list = |(key, values): (&String, &Value)| {
            Some((key.clone(), values.as_array().filter(|values| !values.is_empty())?.clone()))
        };
        grid.iter().map(list).collect()
    };
    let lists = grid.as_object().filter(|grid| !grid.is_empty()).and_then(lists);
    let lists = lists.ok_or_else(|| fail("`grid` must hold a list of values for each setting".to_owned()))?;
    if let Some((key, _)) = lists.iter().find(|(key, _)| table.get(key).is_some()) {
        return Err(fail(format!("`{key}` stands both beside `grid` and in it")));
    }
    let n_all = lists.iter().fold(1usize, |n, (_, values)| n.saturating_mul(values.len()));
    if n_all > MAX_GRID {
        return Err(fail(format!("`grid` has {n_all} combinations; {MAX_GRID} are the most")));
    }
    let mut base = table.as_object().cloned().unwrap_or_default();
    base.shift_remove("grid");
    base.entry("policy").or_insert_with(|| name.into());
    let mut all = vec![(name.to_owned(), base)];
    for (key, values) in &lists {
        let with = |(name, table): &(String, Map<String, Value>)| {
            let (name, table) = (name.clone(), table.clone());
            values.iter().map(move |value| {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let mut table = table.clone();
                table.insert(key.clone(), value.clone());
                (format!("{name}/{key}={shown}"), table)
            })
        };
        all = all.iter().flat_map(with).collect();
    }
    Ok(all.into_iter().map(|(name, table)| (name, Value::Object(table))).collect())
}

struct Reader<'f> {
    list: &'f [PolicyInfo],
    file: &'f Map<String, Value>,
}

impl Reader<'_> {
    fn entry(&self, name: &str, depth: usize) -> Result<Arc<dyn Policy>, ConfigurationError> {
        let fail = |problem: String| ConfigurationError { entry: name.chars().take(60).collect(), problem };
        let Some(Value::Object(table)) = self.file.get(name) else {
            return Err(fail("is no table; a policy is one, with its settings or with `pipeline`".to_owned()));
        };
        if depth > MAX_DEPTH {
            return Err(fail(format!("is {MAX_DEPTH} pipelines deep, or a member of itself")));
        }
        if let Some(members) = table.get("pipeline") {
            if let Some(key) = table.keys().find(|key| *key != "pipeline") {
                let key: String = key.chars().take(60).collect();
                return Err(fail(format!("has {key:?} beside `pipeline`; settings belong to its members")));
            }
            let names: Option<Vec<&str>> = members.as_array().and_then(|all| all.iter().map(Value::as_str).collect());
            let names = names.filter(|names| !names.is_empty());
            let names = names.ok_or_else(|| fail("`pipeline` must be a list of names of policies".to_owned()))?;
            let member = |member: &&str| match self.file.contains_key(*member) && *member != name {
                true => self.entry(member, depth + 1),
                false => self.policy(member, Map::new()).map_err(|problem| fail(format!("`pipeline`: {problem}"))),
            };
            let members = names.iter().map(member).collect::<Result<_, _>>()?;
            return Ok(Arc::new(Pipeline::new(name, members)));
        }
        let mut settings = table.clone();
        let policy = match settings.shift_remove("policy") {
            None => name.to_owned(),
            Some(Value::String(policy)) => policy,
            Some(_) => return Err(fail("`policy` must be the name of a policy".to_owned())),
        };
        if policy != name && self.list.iter().any(|info| info.name == name) {
            return Err(fail("is the name of another policy; give the entry one of its own".to_owned()));
        }
        let policy = self.policy(&policy, settings).map_err(|problem| match table.contains_key("policy") {
            true => fail(problem),
            false => fail(format!("{problem}; a table has `policy` or `pipeline`, or is named after a policy")),
        })?;
        Ok(if policy.name() == name { policy } else { Arc::new(Named { name: name.to_owned(), policy }) })
    }

    fn policy(&self, name: &str, settings: Map<String, Value>) -> Result<Arc<dyn Policy>, String> {
        let shown: String = name.chars().take(60).collect();
        let Some(info) = self.list.iter().find(|info| info.name == name) else {
            let known = self.list.iter().map(|info| info.name).chain(self.file.keys().map(String::as_str));
            return Err(match nearest(name, known.filter(|known| *known != name)) {
                Some(nearest) => format!("unknown policy {shown:?}; did you mean `{nearest}`?"),
                None => format!("unknown policy {shown:?}"),
            });
        };
        info.build(&settings).map(Arc::from).map_err(|BadSetting { problem, .. }| problem)
    }
}

/// A policy under another name.
struct Named {
    name: String,
    policy: Arc<dyn Policy>,
}

impl Policy for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        self.policy.requirement(state)
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        self.policy.plan(state, tried)
    }

    fn config_digest(&self) -> Option<String> {
        self.policy.config_digest()
    }

    fn is_port(&self) -> bool {
        self.policy.is_port()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(file: Value) -> Result<Vec<String>, String> {
        let policies = configure(&crate::policies(), file.as_object().unwrap()).map_err(|error| error.to_string())?;
        Ok(policies.iter().map(|policy| policy.name().to_owned()).collect())
    }

    #[test]
    fn a_file_names_policies_with_settings_and_pipelines_in_its_order() {
        let file = json!({
            "masking-5": {"policy": "observation-masking", "attention_window": 5},
            "folding": {"keep_last": 30},
            "both": {"pipeline": ["masking-5", "llm-summarizing"]},
            "all-three": {"pipeline": ["both", "folding"]},
        });
        assert_eq!(read(file).unwrap(), ["masking-5", "folding", "both", "all-three"]);
        assert_eq!(read(json!({})).unwrap(), [""; 0]);
    }

    #[test]
    fn a_grid_gives_a_policy_per_combination() {
        let file = json!({
            "masking": {"policy": "observation-masking", "minimum_tokens": 9,
                "grid": {"attention_window": [5, 10], "polling": [1, 7]}},
            "folding": {"grid": {"keep_last": [20]}},
        });
        let expected = [
            "masking/attention_window=5/polling=1",
            "masking/attention_window=5/polling=7",
            "masking/attention_window=10/polling=1",
            "masking/attention_window=10/polling=7",
            "folding/keep_last=20",
        ];
        assert_eq!(read(file.clone()).unwrap(), expected);
        let policies = configure(&crate::policies(), file.as_object().unwrap()).unwrap();
        let digests: std::collections::BTreeSet<_> = policies.iter().map(|policy| policy.config_digest()).collect();
        assert_eq!(digests.len(), expected.len());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_entry_and_key_and_the_way_out() {
        for (file, message) in [
            (json!({"a": 1}), "`a`: is no table; a policy is one, with its settings or with `pipeline`"),
            (
                json!({"a": {"policy": "observation-maskin"}}),
                "`a`: unknown policy \"observation-maskin\"; did you mean `observation-masking`?",
            ),
            (
                json!({"foldin": {}}),
                "`foldin`: unknown policy \"foldin\"; did you mean `folding`?; a table has `policy` or `pipeline`, or \
                 is named after a policy",
            ),
            (
                json!({"a": {"policy": "openhands", "max_sizes": 3}}),
                "`a`: there is no setting \"max_sizes\"; did you mean `max_size`? (it has max_size, max_tokens, \
                 keep_first, minimum_progress, hard_context_reset_max_retries, hard_context_reset_context_scaling, \
                 event_preview)",
            ),
            (
                json!({"a": {"policy": "openhands", "max_size": "3"}}),
                "`a`: `max_size`: invalid type: string \"3\", expected i64",
            ),
            (
                json!({"a": {"policy": "openhands", "minimum_progress": 1.0}}),
                "`a`: `minimum_progress` must be between 0 and 1, ends excluded",
            ),
            (
                json!({"a": {"policy": "openhands-v0-amortized", "keep_first": 50}}),
                "`a`: `keep_first` must be less than half of `max_size`",
            ),
            (json!({"a": {"policy": 3}}), "`a`: `policy` must be the name of a policy"),
            (
                json!({"folding": {"policy": "none"}}),
                "`folding`: is the name of another policy; give the entry one of its own",
            ),
            (json!({"a": {"pipeline": "folding"}}), "`a`: `pipeline` must be a list of names of policies"),
            (json!({"a": {"pipeline": []}}), "`a`: `pipeline` must be a list of names of policies"),
            (
                json!({"a": {"pipeline": ["b", "foldin"]}, "b": {"policy": "none"}}),
                "`a`: `pipeline`: unknown policy \"foldin\"; did you mean `folding`?",
            ),
            (
                json!({"a": {"pipeline": ["none"], "keep_first": 1}}),
                "`a`: has \"keep_first\" beside `pipeline`; settings belong to its members",
            ),
            (json!({"a": {"grid": {"x": 1}}}), "`a`: `grid` must hold a list of values for each setting"),
            (
                json!({"a": {"policy": "observation-masking", "polling": 2, "grid": {"polling": [1, 10]}}}),
                "`a`: `polling` stands both beside `grid` and in it",
            ),
            (json!({"a": {"grid": {}}}), "`a`: `grid` must hold a list of values for each setting"),
            (
                json!({"a": {"policy": "none", "grid": {"x": vec![0; 40], "y": vec![0; 40]}}}),
                "`a`: `grid` has 1600 combinations; 1000 are the most",
            ),
            (json!({"zz": {"pipeline": ["zz"]}}), "`zz`: `pipeline`: unknown policy \"zz\""),
            (
                json!({"a": {"pipeline": ["b"]}, "b": {"pipeline": ["a"]}}),
                "`b`: is 16 pipelines deep, or a member of itself",
            ),
        ] {
            assert_eq!(read(file.clone()).unwrap_err(), message, "{file}");
        }
    }
}
