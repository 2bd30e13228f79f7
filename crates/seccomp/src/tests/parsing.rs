//! Every mistake in a rule file is refused with the place where it stands.

use crate::compile::compile;
use crate::rules::{Mistake, RuleError, RuleSet};
use crate::sample::{SampleError, samples};

const HEAD: &str = "name = \"t\"\ndescription = \"d\"\ndefault = \"allow\"\nunknown = \"errno:ENOSYS\"\nforeign = \"allow\"\n";

fn parse(rest: &str) -> Result<RuleSet, RuleError> {
    RuleSet::parse(&format!("{HEAD}{rest}"), &|_| None)
}

fn rule(when: &str) -> Result<RuleSet, RuleError> {
    parse(&format!(
        "[[rule]]\nsyscalls = [\"ioctl\"]\naction = \"errno:EPERM\"\nreason = \"For a test.\"\nwhen = [{when}]\n"
    ))
}

#[test]
fn mistakes_have_a_line_and_a_column() {
    let cases = [
        ("frequent = [\"reed\"]", "6:13: no x86_64 system call is named \"reed\""),
        ("default = \"allow\"", "6:1: duplicate key"),
        ("colour = 1", "6:1: unknown field `colour`"),
        ("[[rule]]\nsyscalls = [\"read\"]\naction = \"deny\"\nreason = \"A b.\"", "8:10: no action \"deny\""),
        ("[[rule]]\nsyscalls = [\"read\"]\naction = \"errno:NOPE\"\nreason = \"A b.\"", "8:10: no action"),
        (
            "[[rule]]\nsyscalls = [\"read\", \"rad\"]\naction = \"allow\"\nreason = \"A b.\"",
            "7:21: no x86_64",
        ),
        (
            "[[rule]]\nsyscalls = [\"read\", \"read\"]\naction = \"allow\"\nreason = \"A b.\"",
            "7:21: \"read\" is listed",
        ),
        ("[[rule]]\nsyscalls = []\naction = \"allow\"\nreason = \"A b.\"", "7:12: a rule lists at least one"),
        (
            "[[rule]]\nsyscalls = [\"read\"]\naction = \"allow\"\nreason = \"\"",
            "9:10: a rule's reason is a sentence",
        ),
        ("[[rule]]\nsyscalls = [\"read\"]\naction = \"allow\"", "6:1: missing field `reason`"),
        (
            "[[rule]]\nsyscalls = [\"read\"]\naction = \"allow\"\nreason = \"A b.\"\nwhy = 1",
            "10:1: unknown field `why`",
        ),
    ];
    for (text, expected) in cases {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
    for text in
        ["name = \"t\"\n", "name = \"t\"\ndescription = \"d\"\ndefault = \"allow\"\nforeign = \"allow\"\n"]
    {
        let error = RuleSet::parse(text, &|_| None).expect_err("keys are missing");
        assert!(error.to_string().contains("missing field"), "{error}");
    }
}

#[test]
fn a_file_extends_one_other() {
    let base = format!(
        "{HEAD}frequent = [\"read\"]\n[[rule]]\nsyscalls = [\"ptrace\"]\naction = \"errno:EPERM\"\nreason = \"For a test.\"\n"
    );
    let head = "name = \"more\"\ndescription = \"m\"\nextends = \"t\"\n";
    let row = "frequent = [\"write\"]\n[[rule]]\nsyscalls = [\"connect\"]\naction = \"notify\"\nreason = \"For a test.\"\n";
    let found = |name: &str| (name == "t").then(|| base.clone());
    let set = RuleSet::parse(&format!("{head}{row}"), &found).expect("extends");
    let plain = parse("").expect("parses");
    assert_eq!((set.default, set.unknown, set.foreign), (plain.default, plain.unknown, plain.foreign));
    assert_eq!((&*set.name, &*set.description), ("more", "m"));
    assert_eq!(set.frequent.len(), 2);
    assert_eq!(
        set.rules.iter().map(|rule| rule.syscalls.len()).sum::<usize>(),
        2,
        "the base's rules and its own"
    );

    for (text, what) in [
        (head.replace("\"t\"", "\"u\""), Mistake::Base("u".into())),
        (format!("{head}unknown = \"allow\"\n"), Mistake::Inherited("unknown")),
    ] {
        assert_eq!(RuleSet::parse(&text, &found).expect_err("refused").what, what, "{text}");
    }
    let chain = |_: &str| Some(head.to_owned());
    assert_eq!(RuleSet::parse(head, &chain).expect_err("one step only").what, Mistake::Base("t".into()));
}

#[test]
fn conditions_that_mean_nothing_are_refused() {
    let cases = [
        ("{ arg = 6, op = \"eq\", value = 1, width = 32 }", Mistake::Arg(6)),
        ("{ arg = -1, op = \"eq\", value = 1, width = 32 }", Mistake::Arg(-1)),
        ("{ arg = 0, op = \"eq\", value = 1, width = 16 }", Mistake::Width(16)),
        ("{ arg = 0, op = \"eq\", value = 0x1_0000_0000, width = 32 }", Mistake::TooWide(0x1_0000_0000)),
        ("{ arg = 0, op = \"eq\", value = -1, width = 64 }", Mistake::TooWide(-1)),
        ("{ arg = 0, op = \"lt\", value = 0, width = 64 }", Mistake::Constant("never")),
        ("{ arg = 0, op = \"ge\", value = 0, width = 64 }", Mistake::Constant("always")),
        ("{ arg = 0, op = \"gt\", value = 0xffff_ffff, width = 32 }", Mistake::Constant("never")),
        ("{ arg = 0, op = \"le\", value = 0xffff_ffff, width = 32 }", Mistake::Constant("always")),
        ("{ arg = 0, op = \"masked-eq\", mask = 1, value = 2, width = 32 }", Mistake::Constant("never")),
        ("{ arg = 0, op = \"masked-ne\", mask = 1, value = 2, width = 32 }", Mistake::Constant("always")),
        ("{ arg = 0, op = \"masked-nonzero\", mask = 0, width = 32 }", Mistake::Constant("never")),
    ];
    for (when, what) in cases {
        assert_eq!(rule(when), Err(RuleError { line: 10, column: 9, what }), "{when}");
    }
    for (when, expected) in [
        ("{ arg = 0, op = \"eq\", width = 32 }", "eq needs `value`"),
        ("{ arg = 0, op = \"masked-eq\", value = 1, width = 32 }", "masked-eq needs `mask`"),
        ("{ arg = 0, op = \"eq\", value = 1, mask = 1, width = 32 }", "eq takes no `mask`"),
        (
            "{ arg = 0, op = \"masked-nonzero\", value = 1, mask = 1, width = 32 }",
            "masked-nonzero takes no `value`",
        ),
        ("{ arg = 0, op = \"eq\", value = 1 }", "missing field `width`"),
        ("{ arg = 0, op = \"is\", value = 1, width = 32 }", "unknown variant `is`"),
        ("{ arg = 0, op = \"eq\", value = 1, width = 32, size = 1 }", "unknown field `size`"),
    ] {
        let error = rule(when).expect_err(when).to_string();
        assert!(error.starts_with("10:") && error.contains(expected), "{when}\n{error}");
    }
}

#[test]
fn every_op_is_parsed_and_compiled() {
    for op in ["eq", "ne", "lt", "le", "gt", "ge"] {
        let set = rule(&format!("{{ arg = 0, op = \"{op}\", value = 7, width = 64 }}")).expect(op);
        assert!(compile(&set).is_ok(), "{op}");
    }
    for op in ["masked-eq", "masked-ne"] {
        let set = rule(&format!("{{ arg = 0, op = \"{op}\", mask = 7, value = 3, width = 32 }}")).expect(op);
        assert!(compile(&set).is_ok(), "{op}");
    }
}

#[test]
fn a_rule_that_never_decides_is_refused() {
    let one = |when: &str| {
        format!(
            "[[rule]]\nsyscalls = [\"read\"]\naction = \"errno:EPERM\"\nreason = \"For {}.\"\n{when}\n",
            when.len()
        )
    };
    let narrow = one("when = [{ arg = 0, op = \"eq\", value = 1, width = 32 }]");
    let wide = one("");
    let impossible = one(
        "when = [{ arg = 0, op = \"eq\", value = 1, width = 32 }, { arg = 0, op = \"eq\", value = 2, width = 32 }]",
    );
    let found = |text: String| samples(&parse(&text).expect("parses"));
    assert_eq!(found(format!("{narrow}{wide}")), Ok(vec![[1, 0, 0, 0, 0, 0], [0; 6]]));
    assert!(matches!(found(format!("{wide}{narrow}")), Err(SampleError::Dead { syscall: "read", .. })));
    assert!(matches!(found(format!("{narrow}{narrow}")), Err(SampleError::Dead { .. })));
    assert!(matches!(found(impossible), Err(SampleError::Dead { .. })));
}
