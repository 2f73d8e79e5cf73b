//! Quoting for a POSIX shell.

/// Quotes `text`, so that a POSIX shell reads it as one word.
pub fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    // Some shells expand a word that begins with `=` to the path of a command.
    if !text.is_empty() && !text.starts_with('=') && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_stay() {
        for word in ["--cell", "target=L,task=gsm8k,seed=1", "/a/b.toml", "50%"] {
            assert_eq!(quote(word), word);
        }
        assert_eq!(quote(""), "''");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote("=x"), "'=x'");
    }

    #[cfg(unix)]
    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        let words = [
            "",
            "a b",
            "$HOME",
            "`id`",
            "it's",
            "\"",
            "a\\b",
            "*",
            "~",
            "a;b",
            "#",
            "é",
            "!x",
            "{a,b}",
            "arm[L_DM].decode.k=3",
            "''",
            "line\nbreak",
            "-n",
            "a=b",
        ];
        for word in words {
            let script = format!("printf '%s' {}", quote(word));
            let output = std::process::Command::new("sh")
                .args(["-c", &script])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word, "{script}");
        }
    }
}
