//! What to redact, compiled once per execution and shared by its streams. Holds every form of every
//! value, so it is wiped on drop (the prefilter of the shapes holds public heads only). Must not be
//! printed. `stream.rs` uses it.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::cover::Label;
use crate::known::Known;
use crate::secret::{Secret, SecretError};
use crate::shapes::{self, Shapes};
use crate::stream::Stream;

#[derive(Clone)]
pub struct Redactor {
    pub(crate) compiled: Arc<Compiled>,
}

pub(crate) struct Compiled {
    pub(crate) known: Option<Known>,
    /// Compiled at the first byte: many commands print none.
    shapes: Option<OnceLock<Shapes>>,
    markers: Vec<Box<[u8]>>,
    pub(crate) secrets: Label,
}

impl Redactor {
    /// `shapes` adds the token shapes to the known values.
    pub fn new(secrets: &[Secret], shapes: bool) -> Result<Self, SecretError> {
        let known = Known::new(secrets)?;
        let count = Label::try_from(secrets.len()).unwrap_or(Label::MAX);
        let shapes = shapes.then(OnceLock::new);
        let marker = |name: &str| format!("[redacted:{name}]").into_bytes().into();
        let known_markers = secrets.iter().map(|secret| marker(secret.name()));
        let markers = known_markers.chain(shapes::names().map(marker)).collect();
        Ok(Self { compiled: Arc::new(Compiled { known, shapes, markers, secrets: count }) })
    }

    /// The state for one output stream.
    pub fn stream(&self) -> Stream {
        Stream::new(self.clone())
    }

    /// A whole text at once: log lines, events, error messages.
    pub fn redact<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let mut stream = self.stream();
        let mut shown = Vec::new();
        let mut out = |bytes: &[u8]| shown.extend_from_slice(bytes);
        stream.push(text, &mut out);
        stream.finish(&mut out);
        if stream.redactions() == 0 { Cow::Borrowed(text) } else { Cow::Owned(shown) }
    }
}

impl Compiled {
    pub(crate) fn shapes(&self) -> Option<&Shapes> {
        self.shapes.as_ref().map(|shapes| shapes.get_or_init(|| Shapes::new(self.secrets)))
    }

    pub(crate) fn marker(&self, label: Label) -> &[u8] {
        self.markers.get(label as usize).map_or(b"[redacted]", |marker| marker)
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("secrets", &self.compiled.secrets)
            .field("shapes", &self.compiled.shapes)
            .finish_non_exhaustive()
    }
}
