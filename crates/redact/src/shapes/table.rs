//! The token shapes: one row each. A shape is a head the prefilter finds, then steps; whatever follows
//! the steps marked as shown is secret. Rows that share a beginning stand with the narrower one first:
//! the first row gives the name. Adding a shape means adding a row here and a case to the tests.

/// A set of bytes.
pub(super) type Class = [bool; 256];

const fn class(members: &[u8], ranges: &[(u8, u8)]) -> Class {
    let mut set = [false; 256];
    let mut at = 0;
    while at < members.len() {
        set[members[at] as usize] = true;
        at += 1;
    }
    let mut at = 0;
    while at < ranges.len() {
        let mut byte = ranges[at].0;
        while byte <= ranges[at].1 {
            set[byte as usize] = true;
            byte += 1;
        }
        at += 1;
    }
    set
}

const fn either(one: &Class, two: &Class) -> Class {
    let mut set = *one;
    let mut at = 0;
    while at < set.len() {
        set[at] |= two[at];
        at += 1;
    }
    set
}

const LETTERS: [(u8, u8); 3] = [(b'A', b'Z'), (b'a', b'z'), (b'0', b'9')];
static ALNUM: Class = class(b"", &LETTERS);
pub(super) static WORD: Class = class(b"_", &LETTERS);
static WORD_DASH: Class = class(b"_-", &LETTERS);
static ALNUM_DASH: Class = class(b"-", &LETTERS);
static WORD_DASH_DOT: Class = class(b"_-.", &LETTERS);
static UPPER: Class = class(b"", &[(b'A', b'Z'), (b'0', b'9')]);
static BEARER: Class = class(b"-._~+/=", &LETTERS);
/// User names and passwords in a URL: what ends a URL in prose, code or a template is left out.
static USER: Class = class(b"-._~!$&'*+,;=%", &LETTERS);
static PASSWORD: Class = class(b"-._~!$&*+,;=%:^#?|", &[LETTERS[0], LETTERS[1], LETTERS[2], (0x80, 0xFE)]);
static USER_OR_PASSWORD: Class = either(&USER, &PASSWORD);

#[derive(Debug)]
pub(super) enum Step {
    Literal(&'static [u8]),
    /// As many bytes of the class as there are.
    Run(&'static Run),
    /// This byte follows and is not part of the token.
    Ahead(u8),
    /// The rest of a private key after its `BEGIN `; see `pem.rs`.
    PrivateKey,
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) class: &'static Class,
    pub(super) min: u32,
    /// Beyond it, a run that isn't the last step is no token: this bounds what a stream holds.
    pub(super) max: u32,
    /// Ordinary words fit the class; a token of this length has a digit.
    pub(super) digit: bool,
    /// A port number is no password: runs of up to five digits aren't held back.
    pub(super) port: bool,
}

/// What must stand before the head.
#[derive(Debug, Clone, Copy)]
pub(super) enum Before {
    Anything,
    /// Not one of these: inside a longer word, or in base64 of megabytes, the head is chance.
    Not(&'static Class),
    /// The armour of PEM.
    Dashes,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) before: Before,
    pub(super) heads: &'static [&'static [u8]],
    /// How many of the head (1) and the steps after it are shown, being no secret.
    pub(super) shown: usize,
    pub(super) steps: &'static [Step],
}

const fn run(class: &'static Class, min: u32) -> Run {
    Run { class, min, max: u32::MAX, digit: false, port: false }
}

const TOKEN: Row = Row { name: "", before: Before::Anything, heads: &[], shown: 0, steps: &[] };

const SK: Row = Row { before: Before::Not(&WORD), heads: &[b"sk-"], ..TOKEN };

/// A JOSE header with an embedded certificate chain is the longest that occurs.
const MAX_JWT_HEADER: u32 = 4096;
const MAX_USER: u32 = 256;
const MAX_PASSWORD: u32 = 512;

static AWS: Run = run(&UPPER, 16);
static GITHUB: Run = run(&WORD, 30);
static GITHUB_PAT: Run = Run { digit: true, ..run(&WORD, 40) };
static GITLAB: Run = run(&WORD_DASH, 20);
static SLACK: Run = Run { digit: true, ..run(&ALNUM_DASH, 20) };
static SK_NAMED: Run = run(&WORD_DASH, 24);
static SK_PLAIN: Run = Run { digit: true, ..run(&ALNUM, 32) };
static GOOGLE: Run = run(&WORD_DASH, 35);
static NPM: Run = run(&ALNUM, 36);
static PYPI: Run = run(&WORD_DASH, 50);
static STRIPE: Run = run(&ALNUM, 16);
static HUGGING_FACE: Run = Run { digit: true, ..run(&ALNUM, 30) };
static JWT_HEADER: Run = Run { max: MAX_JWT_HEADER, ..run(&WORD_DASH, 8) };
static JWT_REST: Run = run(&WORD_DASH_DOT, 8);
static BEARER_TOKEN: Run = Run { digit: true, ..run(&BEARER, 20) };
static URL_USER: Run = Run { max: MAX_USER, ..run(&USER, 0) };
static URL_PASSWORD: Run = Run { max: MAX_PASSWORD, port: true, ..run(&PASSWORD, 3) };

/// Every head once, in the order that decides the speed. The SIMD search sorts them into eight buckets,
/// number n into bucket n mod 8 unless its low nibbles are already in one, and a bucket lets through
/// every mixture of its members' nibbles. So column by column these are heads whose mixtures don't
/// occur in ordinary text: with `npm_` under `hf_`, every `info` would be looked at.
///
/// Each has at least three bytes and none begins another: the search reports one head per place. The last
/// is not searched for: see [`FROM_ITS_END`].
pub(super) static HEADS: [&[u8]; 26] = [
    b"hf_",
    b"ghr_",
    b"glpat-",
    b"Bearer ",
    b"BEGIN ",
    b"-AgEI",
    b"sk-",
    b"eyJ", //
    b"xoxa-",
    b"gho_",
    b"ghu_",
    b"b_pat_",
    b"ASIA",
    b"npm_",
    b"rk_live_",
    b"AIza", //
    b"xoxb-",
    b"ghs_",
    b"ghp_",
    b"bearer ",
    b"AKIA",
    b"xoxp-",
    b"sk_live_",
    b"xoxr-", //
    b"xoxs-",
    URL,
];

const URL: &[u8] = b"://";

/// A head that is found from the byte that ends its token.
#[derive(Debug)]
pub(super) struct FromItsEnd {
    pub(super) head: &'static [u8],
    pub(super) end: u8,
    /// What may stand between them: neither the end nor the head's last byte, so there is one head at most.
    pub(super) between: &'static Class,
    /// And how much of it.
    pub(super) longest: usize,
}

/// URLs stand in every other line of a log and passwords in few of them: stopping at each `://` would cost
/// more than all other heads together.
pub(super) static FROM_ITS_END: FromItsEnd = FromItsEnd {
    head: URL,
    end: b'@',
    between: &USER_OR_PASSWORD,
    longest: (MAX_USER + 1 + MAX_PASSWORD) as usize,
};

pub(super) const ROWS: &[Row] = &[
    Row { name: "aws-key-id", heads: &[b"AKIA", b"ASIA"], steps: &[Step::Run(&AWS)], ..TOKEN },
    Row {
        name: "github-token",
        heads: &[b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"],
        steps: &[Step::Run(&GITHUB)],
        ..TOKEN
    },
    // The end of `github_pat_`: every URL on that host begins like the whole.
    Row { name: "github-token", heads: &[b"b_pat_"], steps: &[Step::Run(&GITHUB_PAT)], ..TOKEN },
    Row { name: "gitlab-token", heads: &[b"glpat-"], steps: &[Step::Run(&GITLAB)], ..TOKEN },
    Row {
        name: "slack-token",
        heads: &[b"xoxa-", b"xoxb-", b"xoxp-", b"xoxr-", b"xoxs-"],
        steps: &[Step::Run(&SLACK)],
        ..TOKEN
    },
    Row { name: "anthropic-key", steps: &[Step::Literal(b"ant-"), Step::Run(&SK_NAMED)], ..SK },
    Row { name: "openai-key", steps: &[Step::Literal(b"proj-"), Step::Run(&SK_NAMED)], ..SK },
    Row { name: "openai-key", steps: &[Step::Literal(b"svcacct-"), Step::Run(&SK_NAMED)], ..SK },
    Row { name: "api-key", steps: &[Step::Literal(b"or-v1-"), Step::Run(&SK_NAMED)], ..SK },
    Row { name: "api-key", steps: &[Step::Run(&SK_PLAIN)], ..SK },
    Row {
        name: "google-key",
        before: Before::Not(&WORD_DASH),
        heads: &[b"AIza"],
        steps: &[Step::Run(&GOOGLE)],
        ..TOKEN
    },
    Row { name: "npm-token", heads: &[b"npm_"], steps: &[Step::Run(&NPM)], ..TOKEN },
    // After `pypi`: the fixed first bytes of its macaroon.
    Row { name: "pypi-token", heads: &[b"-AgEI"], steps: &[Step::Run(&PYPI)], ..TOKEN },
    Row { name: "stripe-key", heads: &[b"sk_live_", b"rk_live_"], steps: &[Step::Run(&STRIPE)], ..TOKEN },
    Row {
        name: "huggingface-token",
        before: Before::Not(&WORD),
        heads: &[b"hf_"],
        steps: &[Step::Run(&HUGGING_FACE)],
        ..TOKEN
    },
    Row {
        name: "jwt",
        before: Before::Not(&WORD_DASH),
        heads: &[b"eyJ"],
        steps: &[Step::Run(&JWT_HEADER), Step::Literal(b".eyJ"), Step::Run(&JWT_REST)],
        ..TOKEN
    },
    Row {
        name: "bearer-token",
        before: Before::Not(&WORD),
        heads: &[b"Bearer ", b"bearer "],
        shown: 1,
        steps: &[Step::Run(&BEARER_TOKEN)],
    },
    Row {
        name: "url-password",
        before: Before::Anything,
        heads: &[URL],
        shown: 3,
        steps: &[Step::Run(&URL_USER), Step::Literal(b":"), Step::Run(&URL_PASSWORD), Step::Ahead(b'@')],
    },
    Row {
        name: "private-key",
        before: Before::Dashes,
        heads: &[b"BEGIN "],
        shown: 1,
        steps: &[Step::PrivateKey],
    },
];
