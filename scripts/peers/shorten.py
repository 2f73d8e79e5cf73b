"""Long prompts, shortened as `omnidraft` does it: `fit_with` of crates/models/src/template.rs, step by step.

A prompt is cut as text, before its template; its length alone is measured in tokens of the target. The first words stay,
as many as fit, and the last paragraph, line or sentence.
"""

# What Rust takes for white space. Python adds four separators (U+001C to U+001F).
WHITE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"


def shortened(prompt, most, count, alone):
    """The part of a prompt that stays. `count(text)` is the number of tokens of a prompt in its template, `alone()` that
    of the template."""
    if count(prompt) <= most:
        return prompt
    template = alone()
    if template > most:
        raise ValueError(f"the prompt template alone takes {template} tokens, the longest prompt has {most}")
    tail = last_part(prompt, most, count, template)
    head = prompt[: len(prompt) - len(tail)]
    ends = word_ends(head)
    best = tail.lstrip(WHITE)
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        text = head[: ends[middle]] + tail
        if count(text) <= most:
            best, low = text, middle + 1
        else:
            high = middle
    if not best and count(best) > most:
        raise ValueError(f"nothing of the prompt fits into {most} tokens")
    return best


def last_part(prompt, most, count, template):
    """The last paragraph, line or sentence with the space before it, the first of these that takes at most half of the
    room; empty if none does."""
    trimmed = prompt.rstrip(WHITE)
    room = (most - template) // 2
    for separator in ["\n\n", "\n", ". "]:
        at = trimmed.rfind(separator)
        if at < 0:
            continue
        # The full stop belongs to the sentence before.
        tail = prompt[at + 1 if separator == ". " else at :]
        if count(tail) <= template + room:
            return tail
    return ""


def word_ends(text):
    """Ends of the words that white space follows, or of all characters but the last if there is none."""
    ends = [at for at in range(1, len(text)) if text[at] in WHITE and text[at - 1] not in WHITE]
    return ends or list(range(1, len(text)))
