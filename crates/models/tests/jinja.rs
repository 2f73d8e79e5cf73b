//! Constructs of Jinja2 and Python that chat templates use. The expected texts were rendered by the
//! environment of transformers 5.24 (Jinja2 3.1.6).

use std::time::{Duration, Instant};

use models::{
    ChatTemplate, Message, TemplateRequest, TemplateValue, TemplateVariables, whole_message,
};

/// A construct, and its rendered text.
const CONSTRUCTS: &[(&str, &str)] = &[
    (
        r"{{ 'a.b.c'.rsplit('.', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'a,b,c'.split(',', maxsplit=1) }}",
        r"['a.b', 'c'] [' a b', 'c'] ['a', 'b,c']",
    ),
    (
        r"{{ ' a  b c '.split(none, 1) }} {{ 'x'.split(',') }} {{ ''.split() }} {{ ''.split(',') }}",
        r"['a', 'b c '] ['x'] [] ['']",
    ),
    (
        r"{{ 'k=v=w'.partition('=') }} {{ 'k=v=w'.rpartition('=') }} {{ 'kv'.partition('=') }} {{ 'kv'.rpartition('=') }}",
        r"('k', '=', 'v=w') ('k=v', '=', 'w') ('kv', '', '') ('', '', 'kv')",
    ),
    (
        r"{{ 'ébc'.index('c') }} {{ 'abca'.rindex('a') }} {{ 'ébc'.find('z') }}",
        r"2 3 -1",
    ),
    (
        r"{{ 'preface'.removeprefix('pre') }} {{ 'preface'.removesuffix('face') }} {{ 'x'.removeprefix('pre') }}",
        r"face pre x",
    ),
    (
        r"[{{ 'ab'.ljust(5) }}] [{{ 'ab'.rjust(5, '.') }}] [{{ 'ab'.center(5, '*') }}] [{{ 'abc'.center(6, '*') }}] {{ '-7'.zfill(4) }} {{ 'x'.zfill(0) }}",
        r"[ab   ] [...ab] [**ab*] [*abc**] -007 x",
    ),
    (
        r"{{ 'HeLLo é'.swapcase() }} {{ 'Straße'.casefold() }} [{{ 'a\tbc\td'.expandtabs(4) }}] [{{ 'a\tb'.expandtabs() }}]",
        r"hEllO É strasse [a   bc  d] [a       b]",
    ),
    (
        r"{{ 'a\nb\r\nc\rd'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ '12'.isdecimal() }} {{ 'Two Words'.istitle() }} {{ 'a_1'.isidentifier() }}",
        r"['a', 'b', 'c', 'd'] ['a\n', 'b'] True True True",
    ),
    (
        r"{{ '%s and %s' % ('a', 2) }} {{ '%s' % 'x' }} {{ '%05.2f|%x|%r' % (3.14159, 255, 'q') }} {{ 'n=%d%%' % 5 }}",
        r"a and 2 x 03.14|ff|'q' n=5%",
    ),
    (
        r"{{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 % 2 }} {{ (loop_index if false else 4) % 2 == 0 }} {{ 2 * 7 % 4 }} {{ 1 + 7 % 4 }}",
        r"1 2 -2 1.5 True 2 4",
    ),
    (
        r"{% for m in [1,2,3,4] %}{{ 'even' if loop.index % 2 == 0 else 'odd' }},{% endfor %}",
        r"odd,even,odd,even,",
    ),
    (
        r"{{ 1e20 }} {{ 1e-7 }} {{ 0.1 }} {{ 100.0 }} {{ 1e15 }} {{ 1e16 }} {{ 2 / 3 }} {{ 6 / 2 }}",
        r"1e+20 1e-07 0.1 100.0 1000000000000000.0 1e+16 0.6666666666666666 3.0",
    ),
    (
        r#"{{ {'b': 1.0, 'a': [1e20, none, true, 'é"\\']} | tojson }}"#,
        r#"{"b": 1.0, "a": [1e+20, null, true, "é\"\\"]}"#,
    ),
    (
        r"{{ {'b': 1, 'a': 'é😀'} | tojson(ensure_ascii=true) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ {'b': [1, 2]} | tojson(separators=(',', ':')) }}",
        r#"{"b": 1, "a": "\u00e9\ud83d\ude00"} {"a": 2, "b": 1} {"b":[1,2]}"#,
    ),
    (
        r"{{ {'b': [1, {'c': []}], 'e': {}} | tojson(indent=2) }}",
        r#"{
  "b": [
    1,
    {
      "c": []
    }
  ],
  "e": {}
}"#,
    ),
    (
        r"{{ [1, [2]] | tojson(indent=1) }} {{ 'a/b<c>&' | tojson }} {{ '\u2028\x7f\x01' | tojson }}",
        "[\n 1,\n [\n  2\n ]\n] \"a/b<c>&\" \" \\u0001\"",
    ),
    (
        r"{{ 'one two  three' | wordcount }} {{ 'a-b c' | wordcount }} [{{ 'ab' | center(7) }}]",
        r"3 3 [   ab  ]",
    ),
    (
        r"{{ 'hello world foo' | truncate(11) }} {{ 'hello world foo bar baz' | truncate(11) }} {{ 'hello world foo bar' | truncate(9, true) }} {{ 'hello world foo bar' | truncate(9, end='!', leeway=0) }} {{ 'short' | truncate(3, true, '') }}",
        r"hello world foo hello... hello ... hello! short",
    ),
    (
        r"{{ 'a bb ccc dddd' | wordwrap(6) }}",
        r"a bb
ccc
dddd",
    ),
    (
        r"{{ 'abcdefghij kl' | wordwrap(4) }}",
        r"abcd
efgh
ij
kl",
    ),
    (
        r"{{ 'abcdefghij kl' | wordwrap(4, false) }} {{ 'a b' | wordwrap(1, wrapstring='/') }}",
        r"abcdefghij
kl a/b",
    ),
    (
        r"{{ 1 | filesizeformat }} {{ 999 | filesizeformat }} {{ 1500 | filesizeformat }} {{ 1500000 | filesizeformat(true) }} {{ 1500000 | filesizeformat(binary=true) }}",
        r"1 Byte 999 Bytes 1.5 kB 1.4 MiB 1.4 MiB",
    ),
    (
        r"{{ 'a b/ü&' | urlencode }} {{ {'a b': 'c/d', 'e': 1} | urlencode }} {{ [('x', 'y z')] | urlencode }}",
        r"a%20b/%C3%BC%26 a+b=c%2Fd&e=1 x=y+z",
    ),
    (
        r#"{{ {'a': 1, 'b': none, 'c': '<"x">'} | xmlattr }}|{{ {'a': 1} | xmlattr(false) }}|{{ {} | xmlattr }}"#,
        r#" a="1" c="&lt;&#34;x&#34;&gt;"|a="1"|"#,
    ),
    (
        r"{{ ' 12 ' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '-1_000' | int }} {{ '0x1f' | int(base=16) }} {{ '3.9' | int }} {{ 2.9 | int }} {{ none | int(default=5) }} {{ '1e3' | float }} {{ 'y' | float }} {{ true | int }}",
        r"12 0 7 -1000 31 3 2 5 1000.0 0.0 1",
    ),
    (
        r"{{ [1e20, 1e-7, none, 'a'] | join(', ') }} {{ [{'a': {'b': 1}}, {'a': {'b': 'c'}}] | join('-', attribute='a.b') }} {{ 'abc' | join('.') }}",
        r"1e+20, 1e-07, None, a 1-c a.b.c",
    ),
    (
        r"{{ none is iterable }} {{ nothing is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ nothing | length }} {{ 'é' | count }} {{ {'a': 1} | length }} {{ none is iterable and none | length > 0 }}",
        r"False True True False 0 1 1 False",
    ),
    (r"{{ '<p>Hello <b>you</b></p>' | striptags }}", r"Hello you"),
    (
        r"{% set j = joiner(' / ') %}{% for i in 'abc' %}{{ j() }}{{ i }}{% endfor %}",
        r"a / b / c",
    ),
    (
        r"{% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}",
        r"xyx",
    ),
    (
        r"{% set c = cycler('a', 'b') %}{{ c.current }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}{{ c.pos }}{{ c.items }}[{{ c.other }}]",
        r"aabbaNonea0('a', 'b')[]",
    ),
    (
        r"{% set j = joiner(sep='|') %}[{{ j.used }}{{ j() }}][{{ j() }}{{ j.used }}{{ j.sep }}]{% set j = joiner() %}{{ j() }}{{ j() }}{% set j = joiner(1) %}{{ j() }}{{ j() + 1 }}",
        r"[False][|True|], 2",
    ),
    (
        r"{{ 'a' is sequence }} {{ {} is sequence }} {{ nothing is sequence }} {{ none is sequence }} {{ 1 is sequence }} {{ [] is sequence }} {{ namespace() is sequence }} {{ messages is sequence }} {{ messages[0] is sequence }}",
        r"True True True False False True False True True",
    ),
    (
        r"{% set n = namespace(a={'x': 1}) %}{{ n }} {{ [n] }} {{ n is mapping }} {{ n.a is mapping }} {{ namespace() }}",
        r"<Namespace {'a': {'x': 1}}> [<Namespace {'a': {'x': 1}}>] False True <Namespace {}>",
    ),
    (
        r"{{ nothing is callable }} {{ 1 is callable }} {{ range is callable }} {{ 'b' is in 'abc' }} {{ 4 is in [1, 4] }} {{ {'items': 1}.items is callable }} {{ {'a': 1}.a is not callable }}",
        r"True False True True True True True",
    ),
    (
        r"{{ 'a\
b' }}",
        r"ab",
    ),
    (
        r#"{{ '\101\x41\u0041\t|\d|\\d' }} {{ "\N{BULLET}\N{EM DASH}" }} {{ 'it\'s "q"' }}"#,
        "AAA\t|\\d|\\d •— it's \"q\"",
    ),
    (
        r"{%- generation %}x{% set y = 1 %}{% endgeneration -%} {{ y is defined }}",
        r"xFalse",
    ),
    (
        r"{% generation %}
  kept
{% endgeneration %}",
        r"  kept
",
    ),
    (
        r"{% for m in messages %}{% generation %}{{ loop.index }}{{ m.role }}{% endgeneration %}{% endfor %}",
        r"1user",
    ),
    (
        r"{{ messages[0].items() | list | length }} {{ messages[0].keys() | list }} {{ messages[0].get('none', 'd') }}",
        r"2 ['role', 'content'] d",
    ),
    (
        r"{{ tool.parameters.properties.items() | list }} {{ tool.parameters['items'] }} {{ tool.parameters.keys() | list }}",
        r"[('items', {'type': 'array'}), ('n', {'minimum': 1e-07})] {'a': 1} ['type', 'items', 'properties']",
    ),
    (
        r"{{ tool | tojson }} {{ tool.name is string }} {{ tool.parameters is mapping }}",
        r#"{"type": "function", "name": "f", "parameters": {"type": "object", "items": {"a": 1}, "properties": {"items": {"type": "array"}, "n": {"minimum": 1e-07}}}} True True"#,
    ),
    (
        r"{{ none ~ true ~ 1.5 ~ [1] }} {{ [none, true, 1.5, 'q'] }} {{ ('a',) }}",
        r"NoneTrue1.5[1] [None, True, 1.5, 'q'] ('a',)",
    ),
    (
        r"{{ '{:>6}|{:<4}|{:^5}|{:.1f}'.format('a', 'b', 'c', 2.25) }} {{ '{0}{1}{0}'.format('x', 'y') }} {{ '{n}'.format(n=3) }}",
        r"     a|b   |  c  |2.2 xyx 3",
    ),
    (
        r"{{ 'abc'[::-1] }} {{ messages[::-1] | length }} {{ [1, 2, 3][-2:] }}",
        r"cba 1 [2, 3]",
    ),
    (
        r"{{ x if x is defined else 'u' }} {{ (x | default('d')) }} {{ 'a' if x }}|",
        r"u d |",
    ),
    (
        r"{{ 'ab' 'cd' }} {{ 'x' * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 2 ** 10 }}",
        r"abcd xxx 3 -4 1024",
    ),
    (
        r"{{ 'a b'.title() }} {{ 'ÀB'.lower() }} {{ 'abab'.replace('a', 'x', 1) }} {{ 'aXbX'.count('X') }}",
        r"A B àb xbab 2",
    ),
    (
        r"{{ ', '.join(['a', 'b']) }} {{ 'abc'.startswith(('x', 'ab')) }} {{ 'xxaxx'.strip('x') }}",
        r"a, b True a",
    ),
    (
        r"{% set n = 1 %}{% for m in ['a','b'] %}{% generation %}{% set n = 5 %}{{ m }}{{ n }}{% endgeneration %}{{ n }}|{% endfor %}{%- generation -%} x {%- endgeneration -%} y",
        r"a51|b51|xy",
    ),
    (
        r"{% for k, v in {'a': 1, 'b': 0}.items() if v -%} {{ k }}{% endfor %}{% for x in 'a-b-%s' % 'c' %}{{ x }}{% endfor %}{% for x in nothing %}{% else %}none{% endfor %}{% for x in [1, [2]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}",
        r"aa-b-cnone1212",
    ),
];

fn load(template: &str) -> ChatTemplate {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    match ChatTemplate::from_model_dir(folder.path(), 1024) {
        Ok(template) => template,
        Err(error) => panic!("{template}: {error}"),
    }
}

fn variables(json: &str) -> TemplateVariables {
    serde_json::from_str(json).unwrap()
}

fn value(json: &str) -> TemplateValue {
    serde_json::from_str(json).unwrap()
}

#[test]
fn constructs_render_as_in_transformers() {
    let request = TemplateRequest {
        variables: variables(
            r#"{"tool": {"type": "function", "name": "f", "parameters": {"type": "object", "items": {"a": 1}, "properties": {"items": {"type": "array"}, "n": {"minimum": 1e-07}}}}}"#,
        ),
        ..TemplateRequest::default()
    };
    let mut wrong = Vec::new();
    for (construct, expected) in CONSTRUCTS {
        // Outside of a condition they would be rendered when the template is loaded, without the
        // tool.
        let template = format!(
            "{{% if tool is defined %}}{construct}{{% endif %}}{{% for m in messages %}}|{{{{ m.content }}}}{{% endfor %}}"
        );
        let found = load(&template).converse(&[Message::new("user", "hi there")], &request);
        let found = match found {
            Ok(found) => found.unwrap().text,
            Err(error) => error.to_string(),
        };
        if found != format!("{expected}|hi there") {
            wrong.push(format!(
                "{construct}\n  expected {expected:?}\n  found    {found:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Quadratic work would take minutes: a prompt may be one long word.
#[test]
fn a_long_word_is_wrapped_in_time() {
    let long = "a".repeat(1_000_000);
    let request = TemplateRequest {
        variables: variables(&format!(r#"{{"long": "{long}"}}"#)),
        ..TemplateRequest::default()
    };
    let template = load(
        "{% if long is defined %}{{ long | wordwrap(1) | length }}{% endif %}{% for m in messages %}|{{ m.content }}{% endfor %}",
    );
    let began = Instant::now();
    let found = template.converse(&[Message::new("user", "hi")], &request);
    assert_eq!(found.unwrap().unwrap().text, "1999999|hi");
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn loops_are_not_left_out_of_blocks() {
    let told = |body: &str| {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("{{% for m in messages %}}\n{body}{{{{ m.content }}}}{{% endfor %}}");
        std::fs::write(folder.path().join("chat_template.jinja"), text).unwrap();
        let found = ChatTemplate::from_model_dir(folder.path(), 1024);
        found.err().map(|error| error.to_string())
    };
    for (body, block) in [
        (
            "{% generation %}{% if true %}{% break %}{% endif %}{% endgeneration %}",
            "generation",
        ),
        ("{% with x = 1 %}{%- continue -%}{% endwith %}", "with"),
        (
            "{% set x | indent(width=2) %}{% break %}{% endset %}",
            "set",
        ),
        ("{% filter upper %}{% break %}{% endfilter %}", "filter"),
    ] {
        let error = told(body).unwrap_or_default();
        let wanted = format!("out of a `{block}` block is not supported");
        assert!(
            error.contains(&wanted) && error.contains(":2"),
            "{body}: {error}"
        );
    }
    for body in [
        "{% with x = 1 %}{% for y in [1, 2] %}{% if y > x %}{% break %}{% endif %}{% endfor %}{% endwith %}",
        "{% set x = 1 %}{% set y = 'a' | replace('a', 'b') %}{% if false %}{% break %}{% endif %}",
        "{% generation %}a{% endgeneration %}{% if loop.index > 9 %}{% continue %}{% endif %}",
        "{% raw %}{% with %}{% endraw %}{% if false %}{% break %}{% endif %}",
    ] {
        assert_eq!(told(body), None, "{body}");
    }
}

#[test]
fn a_loop_over_none_is_an_error() {
    // Jinja2: 'NoneType' object is not iterable.
    let template = load(
        "{% if tool is defined %}{%- for t in none -%}{{ t }}{%- endfor -%}{% endif %}{{ messages[0].content }}",
    );
    let with = |json: &str| TemplateRequest {
        variables: variables(json),
        ..TemplateRequest::default()
    };
    let messages = [Message::new("user", "hi")];
    let found = template.converse(&messages, &with(r#"{"tool": 1}"#));
    let error = found.unwrap_err().to_string();
    assert!(error.contains("none cannot be looped over"), "{error}");
    let found = template.converse(&messages, &with("{}")).unwrap();
    assert_eq!(found.unwrap().text, "hi");
}

#[test]
fn contents_are_parts_where_the_template_reads_parts() {
    let template = load(
        "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}<a>",
    );
    assert_eq!(template.render("hi").unwrap().text, "<user>hi<a>");
    let parts = value(
        r#"{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}"#,
    );
    let message = Message {
        role: "user",
        content: "ab",
        whole: Some(&parts),
    };
    let found = template.converse(&[message], &TemplateRequest::default());
    assert_eq!(found.unwrap().unwrap().text, "<user>ab<a>");
    // A template that reads texts gets texts, whatever form was sent.
    let template =
        load("{% for m in messages %}{{ m.content | upper }}{{ m.content }}{% endfor %}");
    let found = template.converse(&[message], &TemplateRequest::default());
    assert_eq!(found.unwrap().unwrap().text, "ABab");
}

/// A list of parts that is written out as a whole does not show the message: these templates change
/// a text.
#[test]
fn a_template_that_changes_the_text_is_given_a_text() {
    for (content, shown) in [
        ("m.content[:5]", "abcde"),
        ("m.content[::-1]", "hgfedcba"),
        ("m.content | capitalize", "Abcdefgh"),
        (
            "'long' if m.content | length > 20 else m.content",
            "abcdefgh",
        ),
    ] {
        let text = format!("{{% for m in messages %}}<{{{{ {content} }}}}>{{% endfor %}}");
        let found = load(&text).render("abcdefgh").unwrap();
        assert_eq!(found.text, format!("<{shown}>"), "{content}");
    }
    let template =
        load("{% for m in messages %}{% for c in m.content %}{{ c }}.{% endfor %}{% endfor %}");
    assert_eq!(template.render("abc").unwrap().text, "a.b.c.");
}

#[test]
fn messages_are_given_whole() {
    let template = load(
        "{% for m in messages %}[{{ m.role }}:{{ m.content if m.content is defined else '-' }}{% for c in m.tool_calls or [] %} {{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% if m.reasoning_content %} ({{ m.reasoning_content }}){% endif %}{{ m.name or '' }}]{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}>{% endif %}",
    );
    let sent = [
        r#"{"role": "user", "content": "q", "name": null}"#,
        r#"{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"items": [1]}}}], "reasoning": "r"}"#,
        r#"{"role": "tool", "content": "7", "name": "f"}"#,
    ]
    .map(|sent| whole_message(&value(sent), &[]));
    let text = |sent: &TemplateValue, key: &str| {
        let found = sent.get_attr(key).unwrap();
        found.as_str().unwrap_or_default().to_owned()
    };
    let roles = sent.each_ref().map(|sent| text(sent, "role"));
    let contents = sent.each_ref().map(|sent| text(sent, "content"));
    let messages: Vec<Message<'_>> = (0..sent.len())
        .map(|i| Message {
            role: &roles[i],
            content: &contents[i],
            whole: Some(&sent[i]),
        })
        .collect();
    let request = TemplateRequest {
        tools: Some(vec![value(r#"{"type": "function"}"#)]),
        open: false,
        ..TemplateRequest::default()
    };
    let found = template.converse(&messages, &request).unwrap().unwrap();
    assert_eq!(
        found.text,
        "[user:q][assistant:- f{\"items\": [1]} (r)][tool:7f][{\"type\": \"function\"}]"
    );
}

#[test]
fn a_prompt_may_switch_the_words_around_it() {
    let template = load(
        "{%- for m in messages %}<u>{{ m.content }}<e>{% endfor %}<a>{% if '/quick' in messages[-1].content %}<think></think>{% endif %}",
    );
    assert_eq!(
        template.render("a /quick").unwrap().text,
        "<u>a /quick<e><a><think></think>"
    );
    assert_eq!(template.render("a").unwrap().text, "<u>a<e><a>");
    // Shown twice, shown in another form, shown in part.
    for (template, expected) in [
        (
            "{{ messages[0].content }}|{{ messages[0].content }}",
            "A b|A b",
        ),
        (
            "{{ messages[0].content }}{{ messages[0].content | upper }}",
            "A bA B",
        ),
        (
            "{{ messages[0].content.split('-')[0] }} {{ messages[0].content[:1] }}",
            "A b A",
        ),
    ] {
        assert_eq!(load(template).render("A b").unwrap().text, expected);
    }
}

#[test]
fn variables_and_a_system_message_can_be_set() {
    let template = load(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if enable_thinking is defined and not enable_thinking %}<no>{% endif %}",
    );
    let thoughtless = variables(r#"{"enable_thinking": false}"#);
    let set = template
        .clone()
        .with(thoughtless, Some("be brief".to_owned()))
        .unwrap();
    assert_eq!(template.render("q").unwrap().text, "<user>q");
    assert_eq!(set.render("q").unwrap().text, "<system>be brief<user>q<no>");
    let own = [Message::new("system", "x"), Message::new("user", "q")];
    let thinking = TemplateRequest {
        variables: variables(r#"{"enable_thinking": true}"#),
        ..TemplateRequest::default()
    };
    let found = set.converse(&own, &thinking).unwrap().unwrap();
    assert_eq!(found.text, "<system>x<user>q");
    let folder = tempfile::tempdir().unwrap();
    let plain = ChatTemplate::from_model_dir(folder.path(), 64).unwrap();
    assert!(
        plain
            .with(TemplateVariables::new(), Some("x".to_owned()))
            .is_err()
    );
}

#[test]
fn long_prompts_are_shortened_without_an_empty_message() {
    use models::{Rendered, TemplateError};
    let words = |r: &Rendered| Ok::<_, TemplateError>(r.text.split_whitespace().count());
    for template in [
        "{% for m in messages %}{% if m.content %}u {{ m.content }} e {% endif %}{% endfor %}a",
        "{% for m in messages %}{% if not m.content %}{{ raise_exception('empty') }}{% endif %}u {{ m.content }} e {% endfor %}a",
        "{% for m in messages %}u {{ m.content }} e {% if 'six' in m.content %}x y {% endif %}{% endfor %}a",
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        std::fs::write(
            folder.path().join("omnidraft.json"),
            r#"{"max_prompt_tokens": 7}"#,
        )
        .unwrap();
        let template = ChatTemplate::from_model_dir(folder.path(), 64).unwrap();
        let fitted = template
            .fit("one two three four five six\n\nSum up.", words)
            .unwrap();
        assert_eq!(fitted.rendered.text, "u one two\n\nSum up. e a");
        assert_eq!(fitted.said, "one two\n\nSum up.");
        // A single long word is cut inside.
        assert!(template.fit("one", words).is_ok());
        let tight = r#"{"max_prompt_tokens": 3}"#;
        std::fs::write(folder.path().join("omnidraft.json"), tight).unwrap();
        let template = ChatTemplate::from_model_dir(folder.path(), 64).unwrap();
        let result = template.fit("one two", words);
        match result {
            Ok(fitted) => assert!(words(&fitted.rendered).unwrap() <= 3),
            Err(error) => assert!(
                error.to_string().contains("max_prompt_tokens is 3"),
                "{error}"
            ),
        }
    }
}
