//! Templates of recipes, and the shortening of long prompts.

use models::{PromptTemplate, Rendered, TemplateError};
use streams::{DataSource, Split};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn words(rendered: &Rendered) -> Result<usize, TemplateError> {
    Ok(rendered.text.split_whitespace().count())
}

fn budget(max_prompt_tokens: usize) -> PromptTemplate {
    PromptTemplate {
        max_prompt_tokens,
        ..PromptTemplate::default()
    }
}

#[test]
fn long_prompts_keep_head_and_instruction_and_fit() -> Result {
    let prompts = DataSource::embedded().load("mini-news", Split::Test)?;
    for max in 2..60 {
        for prompt in prompts.iter().take(5) {
            let fitted = budget(max).fit(&prompt.prompt, words)?;
            let body = fitted.rendered.body();
            assert!(words(&fitted.rendered)? <= max);
            if max >= 16 {
                let instruction = "\n\nSummarize the above article in 1 sentence.";
                let head = body
                    .strip_suffix(instruction)
                    .ok_or("the instruction was cut")?;
                assert!(prompt.prompt.starts_with(head) && !head.is_empty());
                assert_eq!(words(&fitted.rendered)?, max, "no room is wasted");
            }
        }
    }
    let error = budget(1).fit("a b c", words);
    assert!(matches!(
        error,
        Err(TemplateError::PromptBudget { needed: 2, .. })
    ));
    Ok(())
}

#[test]
fn without_paragraphs_the_last_sentence_or_nothing_is_kept() -> Result {
    let fit = |text: &str| -> Result<String> {
        let fitted = budget(8).fit(text, words)?;
        Ok(fitted.rendered.body().to_owned())
    };
    assert_eq!(
        fit("One two three four five six. How many now?")?,
        "One two three How many now?"
    );
    assert_eq!(
        fit("one two three four five six seven")?,
        "one two three four five six"
    );
    let bytes = |r: &Rendered| Ok::<_, TemplateError>(r.body().len());
    let fitted = budget(7).fit("ééééééé", bytes)?;
    let body = fitted.rendered.body();
    assert_eq!(body, "ééé", "cut between characters, never inside one");
    Ok(())
}
