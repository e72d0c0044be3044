//! Whether an output is what was shown.

/// The expected output without its last line `[exit N]`, and that status; 0 without one.
pub fn exit_of(expected: &str) -> (String, i32) {
    let trimmed = expected.trim_end();
    let (before, last) = trimmed.rsplit_once('\n').unwrap_or(("", trimmed));
    let code = last.strip_prefix("[exit ").and_then(|rest| rest.strip_suffix(']')).and_then(|code| code.parse().ok());
    match code {
        Some(code) => (before.to_owned(), code),
        None => (expected.to_owned(), 0),
    }
}

/// Whether `output` fits `expected`: `...` stands for any lines, `[..]` for anything in a line. Spaces
/// at the ends of lines and empty lines at the ends do not count.
pub fn fits(expected: &str, output: &str) -> bool {
    let lines =
        |text: &str| -> Vec<String> { text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect() };
    fit_lines(&lines(expected), &lines(output))
}

fn fit_lines(expected: &[String], output: &[String]) -> bool {
    match expected.split_first() {
        None => output.is_empty(),
        Some((first, rest)) if first.trim() == "..." => {
            (0..=output.len()).any(|skipped| fit_lines(rest, &output[skipped..]))
        }
        Some((first, rest)) => {
            output.split_first().is_some_and(|(line, others)| fit_line(first, line) && fit_lines(rest, others))
        }
    }
}

fn fit_line(expected: &str, line: &str) -> bool {
    match expected.split_once("[..]") {
        None => expected == line,
        Some((before, after)) => {
            let Some(rest) = line.strip_prefix(before) else { return false };
            (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| fit_line(after, &rest[at..]))
        }
    }
}

#[test]
fn wildcards_stand_for_what_they_say() {
    assert!(fits("a[..]z\n...\nend\n", "abcz\nx\ny\nend"));
    assert!(fits("", "\n"));
    assert!(!fits("a", "b"));
    assert!(!fits("a\nb", "a"));
    assert_eq!(exit_of("x\n[exit 4]\n"), ("x".into(), 4));
    assert_eq!(exit_of("x\n"), ("x\n".into(), 0));
}
