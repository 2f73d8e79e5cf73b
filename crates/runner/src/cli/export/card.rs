//! The model card of an exported drafter: its origin, training and use.

use std::path::Path;

use online::SavedDrafter;

use super::found::Found;
use crate::build;

/// The data of a card.
pub(super) struct Card<'a> {
    pub(super) found: &'a Found,
    /// The drafter before learning.
    pub(super) base: &'a Path,
    pub(super) saved: &'a SavedDrafter,
}

/// The last component of a path.
fn last(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

impl Card<'_> {
    /// A name for the model.
    pub(super) fn name(&self) -> String {
        format!("{} for {}", last(self.base), self.targets())
    }

    fn targets(&self) -> String {
        self.found.targets.join(", ")
    }

    /// A description in one line.
    pub(super) fn line(&self) -> String {
        let Found { tasks, answers, .. } = self.found;
        let on = match tasks.as_slice() {
            [] => String::new(),
            tasks => format!(" on {}", tasks.join(", ")),
        };
        let by = match answers {
            Some(answers) => format!(" and {answers} answers"),
            None => String::new(),
        };
        let mean = if self.saved.mean {
            ", running mean"
        } else {
            ""
        };
        format!(
            "{} as it learnt to draft for {}{on}: {}, {} updates{by}{mean}",
            self.base.display(),
            self.targets(),
            self.saved.part,
            self.saved.updates
        )
    }

    /// The facts, a row each.
    fn facts(&self) -> String {
        let Found {
            tasks,
            answers,
            acceptance,
            place,
            ..
        } = self.found;
        let built = build::info();
        let dirty = match built.git_dirty {
            Some(true) => ", with changes that are in no commit",
            _ => "",
        };
        let tasks = match tasks.as_slice() {
            [] => "whatever was asked".to_owned(),
            tasks => tasks.join(", "),
        };
        let told = |number: &Option<u64>| number.map_or("unknown".to_owned(), |n| n.to_string());
        let decodes = match self.saved.mean {
            true => ", as the running mean of its updates",
            false => "",
        };
        let mut rows = vec![
            ("base model", format!("`{}`", self.base.display())),
            ("drafts for", format!("`{}`", self.targets())),
            ("tasks", tasks),
            ("learnt in", place.clone()),
            ("what learnt", format!("{}{decodes}", self.saved.part)),
            ("updates", self.saved.updates.to_string()),
            ("answers drafted for meanwhile", told(answers)),
        ];
        if let Some(([first, last], count)) = acceptance {
            let percent = |share: &f64| format!("{:.1} %", 100.0 * share);
            rows.push((
                "drafted tokens accepted",
                format!(
                    "{} of the first {count} answers, {} of the last {count} (means of answers, which were of different prompts)",
                    percent(first),
                    percent(last)
                ),
            ));
        }
        rows.push((
            "made by",
            format!(
                "omnidraft {}, commit {}{dirty}",
                built.version, built.git_commit
            ),
        ));
        let rows = rows
            .iter()
            .map(|(name, value)| format!("| {name} | {value} |\n"));
        format!("| | |\n|---|---|\n{}", rows.collect::<String>())
    }

    /// The card of a whole model in the folder `out`, whose weights are of the type `stored`.
    pub(super) fn of_folder(&self, out: &Path, stored: &str) -> String {
        format!(
            "# {name}

A drafter: a small model that proposes tokens to a larger one, its target, which verifies them. This one went on
learning from what `{target}` accepted and rejected. What a target answers does not depend on it; how fast, does.

{facts}
Weights learn in f32. Here they are in {stored}.

## Use

With transformers, as an assistant. Where both models have one tokenizer, leave out the two arguments that name them:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

target = AutoModelForCausalLM.from_pretrained(\"TARGET\")
tokenizer = AutoTokenizer.from_pretrained(\"TARGET\")
assistant = AutoModelForCausalLM.from_pretrained(\"{out}\")
assistant_tokenizer = AutoTokenizer.from_pretrained(\"{out}\")
inputs = tokenizer(\"Write a haiku.\", return_tensors=\"pt\")
answer = target.generate(
    **inputs,
    assistant_model=assistant,
    tokenizer=tokenizer,
    assistant_tokenizer=assistant_tokenizer,
)
```

With vLLM, where both models have one vocabulary:

```sh
vllm serve TARGET --speculative-config '{{\"model\": \"{out}\", \"num_speculative_tokens\": 4}}'
```

With omnidraft, whatever the vocabularies:

```sh
omnidraft generate --target TARGET --drafter {out} --prompt 'Write a haiku.'
omnidraft serve --target TARGET --drafter {out}
```

The licence is that of the base model.
",
            name = self.name(),
            target = self.targets(),
            facts = self.facts(),
            out = out.display(),
        )
    }

    /// The card of an adapter.
    pub(super) fn of_adapter(&self) -> String {
        let mean = match self.saved.mean {
            true => {
                "\nThe adapter is as it was last. What omnidraft decodes with is the running mean of its merged weights, which\nis no adapter: `omnidraft export` without `--adapter` writes that.\n"
            }
            false => "",
        };
        format!(
            "# {name}: adapter

Low-rank matrices in the files of PEFT, for the drafter `{base}` as it drafts for `{target}`.

{facts}{mean}
## Use

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained(\"{base}\")
drafter = PeftModel.from_pretrained(base, \"DIR\").merge_and_unload()
```
",
            name = self.name(),
            base = self.base.display(),
            target = self.targets(),
            facts = self.facts(),
        )
    }
}
