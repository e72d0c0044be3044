//! Files that refer to files.

use rekindle_definitions::Definition;

use crate::kit::{Files, check, only};

#[test]
fn files_that_are_missing_are_named_where_they_are_meant() {
    let files = Files::new(&[
        ("a.yaml", "name: a\nmodel: openai/x\ntools:\n  - {name: b, agent: ./b.yaml}\nsystem_file: ./s.txt\n"),
        ("c.txt", "x"),
    ]);
    let faults = Definition::load(files.path("a.yaml")).unwrap_err();
    assert_eq!(faults.len(), 2, "{faults}");
    check(&faults, (5, 14), "`./s.txt`: there is no such file", "");
    assert!(faults.to_string().contains(":4:22: the file `./b.yaml` does not exist"), "{faults}");
    assert!(only(&Definition::load(files.path("x.yaml")).unwrap_err()).message.contains("there is no such file"));
    assert!(Definition::load(files.path("c.txt")).unwrap_err().to_string().contains(".yaml, .yml, .toml, .json"));
    std::fs::write(files.path("bad.json"), b"{\"a\": \"\xff\"}").unwrap();
    check(&Definition::load(files.path("bad.json")).unwrap_err(), (1, 8), "not UTF-8", "");
}

#[test]
fn circles_of_files_are_refused_with_the_chain() {
    let agent = |name: &str, other: &str| {
        format!("name: {name}\ndescription: d\nmodel: openai/x\ntools:\n  - {{name: t, agent: {other}}}\n")
    };
    let files = Files::new(&[
        ("a.yaml", &agent("a", "sub/b.yaml")),
        ("sub/b.yaml", &agent("b", "../c.yaml")),
        ("c.yaml", &agent("c", "./sub/b.yaml")),
        ("self.yaml", &agent("s", "self.yaml")),
    ]);
    let faults = Definition::load(files.path("a.yaml")).unwrap_err();
    check(&faults, (5, 22), "in a circle: b.yaml → c.yaml → b.yaml", "");
    assert!(only(&faults).file.as_deref().unwrap().ends_with("c.yaml"));
    let faults = Definition::load(files.path("self.yaml")).unwrap_err();
    check(&faults, (5, 22), "in a circle: self.yaml → self.yaml", "");
}

#[test]
fn rows_of_files_are_bounded() {
    let texts: Vec<(String, String)> = (0..20)
        .map(|number| {
            let next = number + 1;
            let text = format!("name: a\ndescription: d\nmodel: openai/x\ntools: [{{name: t, agent: a{next}.yaml}}]\n");
            (format!("a{number}.yaml"), text)
        })
        .collect();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let faults = Definition::load(Files::new(&texts).path("a0.yaml")).unwrap_err();
    assert!(faults.to_string().contains("too deeply"), "{faults}");
}

#[test]
fn what_a_file_holds_must_fit_where_it_is_named() {
    let files = Files::new(&[
        ("a.yaml", "name: a\nmodel: openai/x\ntools: [{name: t, agent: p.yaml}]\n"),
        ("p.yaml", "name: p\ndescription: d\nsteps: []\n"),
        ("b.yaml", "name: b\nmodel: openai/x\ntools: [{name: t, agent: {model: openai/x}}]\n"),
        ("broken.yaml", "name: b\nmodel: openai/x\ntools: [{name: t, agent: broken2.yaml}]\n"),
        ("broken2.yaml", "name: b\nmodle: openai/x\n"),
    ]);
    let faults = Definition::load(files.path("a.yaml")).unwrap_err();
    check(&faults, (3, 26), "`p.yaml` holds a plan, not an agent", "");
    let faults = Definition::load(files.path("b.yaml")).unwrap_err();
    check(&faults, (3, 19), "nobody says what `t` is for", "`description`");
    let faults = Definition::load(files.path("broken.yaml")).unwrap_err();
    assert!(faults.to_string().contains("broken2.yaml:2:1: unknown key `modle`"), "{faults}");
}

#[test]
fn every_file_that_was_read_is_known() {
    let files = Files::new(&[
        (
            "a.yaml",
            "name: a\nmodel: scripted/s.yaml\nsystem_file: s.txt\ntools: [{name: t, description: d, agent: b.toml}]\n",
        ),
        ("b.toml", "name = 'b'\nmodel = 'openai/x'\n"),
        ("s.txt", "You help."),
        ("s.yaml", "name: s\nturns: [{text: hi}]\n"),
    ]);
    let definition = Definition::load(files.path("a.yaml")).unwrap();
    let mut names: Vec<_> = definition.files().iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names.remove(0), "a.yaml");
    names.sort();
    assert_eq!(names, ["b.toml", "s.txt", "s.yaml"]);
    assert_eq!(definition.path().unwrap(), files.path("a.yaml"));
}
