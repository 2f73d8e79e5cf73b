//! Chat templates: those of this project, and templates in the styles of published models.

use std::path::Path;

use models::{
    ChatTemplate, Markers, Message, PromptTemplate, Rendered, TemplateError, TemplateRequest,
    TemplateVariables,
};

/// Headers, trimmed messages, a dated system block: the style of Llama 3.
const LLAMA3_STYLE: &str = r#"{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: tools\n" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{%- endfor %}
{%- endif %}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if message.role == 'tool' or 'tool_calls' in message %}
        {{- raise_exception("no tools here") }}
    {%- endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"#;

/// A default system message, `loop.first`, no beginning of text: the style of Qwen2.
const QWEN2_STYLE: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}\
{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Python methods, namespaces, macros, loop controls, `tojson`, blocks on lines of their own.
const PYTHON_STYLE: &str = r#"{%- macro tag(name, text) -%}<{{ name }}>{{ text }}</{{ name }}>{%- endmacro -%}
{%- set ns = namespace(seen=0, last='') %}
{% for message in messages %}
    {% if message.role == 'system' %}
        {% continue %}
    {% endif %}
    {%- set ns.seen = ns.seen + 1 %}
    {%- set ns.last = message['role'].strip().upper() %}
{{ tag(ns.last, message.content.split('\n') | join('\n')) }}
{% endfor %}
{%- if 'USER'.startswith('US') and ns.seen == 1 %}
{{- {'role': 'x', 'content': "é <b> 'q'", 'n': [1, 2]} | tojson }}
{%- endif %}
{%- for key, value in messages[0].items() if key == 'role' %}{{ key }}={{ value }};{% endfor -%}
"#;

fn load(files: &[(&str, &str)]) -> Result<ChatTemplate, TemplateError> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    ChatTemplate::from_model_dir(folder.path(), 1024)
}

fn in_config(template: &str) -> String {
    serde_json::json!({
        "bos_token": {"content": "<|begin_of_text|>", "lstrip": false},
        "eos_token": "<|eot_id|>",
        "chat_template": template,
    })
    .to_string()
}

fn text(template: &ChatTemplate, prompt: &str) -> String {
    template.render(prompt).unwrap().text
}

#[test]
fn the_llama_3_style_renders() {
    let template = load(&[("tokenizer_config.json", &in_config(LLAMA3_STYLE))]).unwrap();
    assert!(template.is_chat());
    let rendered = template.render("  2 + 2? <|eot_id|>\n").unwrap();
    let (prefix, rest) = rendered.text.split_at(rendered.bodies[0].start);
    let (body, suffix) = rest.split_at(rendered.body().len());
    assert!(prefix.starts_with(
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nToday Date: "
    ));
    assert!(prefix.ends_with("\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"));
    let date = prefix.split("Today Date: ").nth(1).unwrap();
    assert_eq!(date.as_bytes()[2], b' ');
    // Trimmed by the template, and no special token of the prompt's reaches the markup.
    assert_eq!(body, "2 + 2? <|eot_id|>");
    assert_eq!(
        suffix,
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    );
}

#[test]
fn the_qwen2_style_renders_from_either_place() {
    let expected = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n\
                    <|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\n";
    let named = serde_json::json!({"bos_token": null, "chat_template": [
        {"name": "tool_use", "template": "no"}, {"name": "default", "template": QWEN2_STYLE},
    ]});
    for files in [
        vec![("chat_template.jinja", QWEN2_STYLE.to_owned())],
        vec![("tokenizer_config.json", in_config(QWEN2_STYLE))],
        vec![("tokenizer_config.json", named.to_string())],
        // The file takes precedence over the key.
        vec![
            ("chat_template.jinja", QWEN2_STYLE.to_owned()),
            (
                "tokenizer_config.json",
                in_config("{{ messages[0].content }}"),
            ),
        ],
    ] {
        let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (*n, t.as_str())).collect();
        assert_eq!(text(&load(&files).unwrap(), " hi "), expected);
    }
}

#[test]
fn python_methods_macros_namespaces_and_tojson_work() {
    let template = load(&[("chat_template.jinja", PYTHON_STYLE)]).unwrap();
    assert_eq!(
        text(&template, "a\nb"),
        "<USER>a\nb</USER>\n{\"role\": \"x\", \"content\": \"é <b> 'q'\", \"n\": [1, 2]}role=user;"
    );
}

#[test]
fn without_a_template_a_prompt_is_plain_text() {
    let template = load(&[]).unwrap();
    assert_eq!(text(&template, " Once\n"), " Once\n");
    assert!(!template.is_chat());
    assert_eq!(template.markers(), Markers::Special);
    let text = load(&[("omnidraft.json", r#"{"prompt_markers": "text"}"#)]).unwrap();
    assert_eq!(text.markers(), Markers::Text);
}

/// Jinja2 reads every line end as a line feed, also in strings.
#[test]
fn line_ends_of_other_systems_are_line_feeds() {
    let unix = "{%- for m in messages %}\n{{- '<|im_start|>\n' + m.content + \"\n\" }}\n{%- endfor %}\nend\n";
    for ends in ["\r\n", "\r"] {
        let template = unix.replace('\n', ends);
        let template = load(&[("tokenizer_config.json", &in_config(&template))]).unwrap();
        assert_eq!(text(&template, "a\r\nb"), "<|im_start|>\na\r\nb\nend");
    }
}

#[test]
fn faults_name_file_and_line() {
    let told = |files: &[(&str, &str)], parts: &[&str]| {
        // If a variable may still be given, a fault is reported once the template is used without
        // it.
        let asked = load(files).and_then(|found| found.with(TemplateVariables::new(), None));
        let Err(error) = asked else {
            panic!("accepted: {files:?}");
        };
        let message = error.to_string();
        for part in parts {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
    };
    let jinja = |text: &'static str| [("chat_template.jinja", text)];
    told(
        &jinja("{{ bos_token }}\n{% for m in messages %}\n{{ m.content }\n{% endfor %}"),
        &["chat_template.jinja:3"],
    );
    told(
        &jinja("{{ messages[0].content }}\n{{ raise_exception('needs a system message') }}"),
        &["chat_template.jinja:2", "needs a system message"],
    );
    told(
        &[(
            "tokenizer_config.json",
            &in_config("\n\n{{ nothing.at.all }}"),
        )],
        &["tokenizer_config.json: chat_template:3"],
    );
    told(&jinja("Hello"), &["does not show the user's message"]);
    told(
        &[
            (
                "chat_template.jinja",
                "{{ messages[0].content }}{{ messages[0].content }}",
            ),
            ("omnidraft.json", r#"{"prompt_markers": "text"}"#),
        ],
        &["not exactly once"],
    );
    told(
        &jinja("{{ messages[0].content }}\n{{ 'a' + eos_token }}"),
        &["chat_template.jinja:2", "not given: eos_token"],
    );
    told(
        &jinja("{{ messages[0].content }}\n{{ '\\x4' }}"),
        &["chat_template.jinja:2", "\\x"],
    );
    let named = |names: &[&str]| {
        let list: Vec<_> = names
            .iter()
            .map(|name| serde_json::json!({"name": name, "template": QWEN2_STYLE}))
            .collect();
        serde_json::json!({ "chat_template": list }).to_string()
    };
    told(
        &[("tokenizer_config.json", &named(&["tool_use", "rag"]))],
        &["rag, tool_use", "called default"],
    );
    for wrong in [
        "7",
        "true",
        "[7]",
        r#"[{"name": "default"}]"#,
        r#"{"default": 7}"#,
    ] {
        let config = format!(r#"{{"chat_template": {wrong}}}"#);
        told(
            &[("tokenizer_config.json", &config)],
            &["tokenizer_config.json", "chat_template must be"],
        );
    }
    told(
        &jinja("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"),
        &["fuel"],
    );
    told(
        &[("tokenizer_config.json", "{")],
        &["tokenizer_config.json"],
    );
    told(
        &[("omnidraft.json", r#"{"max_prompt_token": 3}"#)],
        &["omnidraft.json", "max_prompt_token"],
    );
    told(&[("omnidraft.json", r#"{"max_prompt_tokens": 0}"#)], &["0"]);
}

#[test]
fn a_declared_template_is_written_as_one_that_renders_the_same() {
    for words in [
        "<|user|>\n{prompt}\n<|assistant|>\n",
        "{prompt}\n",
        "it's \\ a \"{{ test }}\" {% x %}\t{prompt}<|im_end|>\nétoile: ",
    ] {
        let declared = PromptTemplate {
            prompt_template: words.to_owned(),
            max_prompt_tokens: 7,
            ..PromptTemplate::default()
        };
        let folder = tempfile::tempdir().unwrap();
        declared.write(folder.path()).unwrap();
        let config = r#"{"bos_token": "<s>"}"#;
        std::fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        let template = ChatTemplate::from_model_dir(folder.path(), 64).unwrap();
        for prompt in ["What's 2 + 2?", "", " \n'quoted' {{ bos_token }}\n"] {
            let expected = format!("<s>{}", declared.render(prompt).text);
            assert_eq!(text(&template, prompt), expected);
        }
        let count = |r: &Rendered| Ok::<_, TemplateError>(r.body().split(' ').count());
        let fitted = template.fit("a b c d e f g h i j", count).unwrap();
        assert_eq!(fitted.rendered.body(), "a b c d e f g");
    }
}

/// As in transformers: the single file first, then the folder of files, then the keys.
#[test]
fn templates_are_found_in_every_place() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let shown = || {
        let template = ChatTemplate::from_model_dir(folder.path(), 64).unwrap();
        template.render("x").unwrap().text
    };
    write(
        "chat_template.json",
        r#"{"chat_template": "1{{ messages[0].content }}"}"#,
    );
    assert_eq!(shown(), "1x");
    write(
        "tokenizer_config.json",
        r#"{"chat_template": {"default": "2{{ messages[0].content }}"}}"#,
    );
    assert_eq!(shown(), "2x");
    write("chat_templates/default.jinja", "3{{ messages[0].content }}");
    write(
        "chat_templates/tool_use.jinja",
        "{{ tools[0].name }}{{ messages[0].content }}",
    );
    assert_eq!(shown(), "3x");
    write("chat_template.jinja", "4{{ messages[0].content }}");
    // As in transformers, the folder's template of the same name takes precedence over the file.
    let template = ChatTemplate::from_model_dir(folder.path(), 64);
    assert_eq!(template.unwrap().render("x").unwrap().text, "3x");
    let template = ChatTemplate::from_model_dir(folder.path(), 64).unwrap();
    let request = models::TemplateRequest {
        tools: Some(vec![serde_json::from_str(r#"{"name": "f"}"#).unwrap()]),
        ..models::TemplateRequest::default()
    };
    let message = [models::Message::new("user", "x")];
    assert_eq!(
        template.converse(&message, &request).unwrap().unwrap().text,
        "fx"
    );
}

#[test]
fn shipped_models_carry_their_template() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    for entry in std::fs::read_dir(models).unwrap() {
        let folder = entry.unwrap().path();
        if folder.join("model.safetensors").is_file() {
            let template = ChatTemplate::from_model_dir(&folder, 1024).unwrap();
            assert!(template.is_chat(), "{} has no template", folder.display());
        }
    }
}

/// A template that needs a variable can be loaded; the variable is given once for all or with a
/// request.
#[test]
fn a_variable_may_be_given_later() {
    for source in [
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ cfg.a }}",
        "{% if cfg is not defined %}{{ raise_exception('cfg is needed') }}{% endif %}{{ messages[0].content }}{{ cfg.a }}",
        "{% if cfg %}{{ messages[0].content }}{{ cfg.a }}{% endif %}",
        // It reads parts, which shows only with the variable.
        "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}{{ cfg.a }}",
    ] {
        let template = load(&[("chat_template.jinja", source)]).unwrap();
        assert!(template.render("hi").is_err(), "{source}");
        let user = Message::new("user", "hi");
        let asked = template.converse(&[user], &TemplateRequest::default());
        assert!(asked.is_err(), "{source}");
        let variables: TemplateVariables = serde_json::from_str(r#"{"cfg": {"a": "!"}}"#).unwrap();
        let request = TemplateRequest {
            variables: variables.clone(),
            ..TemplateRequest::default()
        };
        let asked = template.converse(&[user], &request).unwrap().unwrap();
        assert_eq!(asked.text, "hi!", "{source}");
        assert!(
            template
                .clone()
                .with(TemplateVariables::new(), None)
                .is_err()
        );
        let template = template.with(variables, None).unwrap();
        assert_eq!(text(&template, "hi"), "hi!", "{source}");
    }
    // No variable can repair these.
    for source in [
        "{{ messages[0].content | nothing }}{{ cfg.a }}",
        "Hello {{ bos_token }}",
    ] {
        assert!(
            load(&[("chat_template.jinja", source)]).is_err(),
            "{source}"
        );
    }
}
