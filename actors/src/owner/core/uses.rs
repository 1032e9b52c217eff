//! Who needs an object or a set: the two counts that keep it.

/// How often something is needed, and by how many it could be asked for again.
#[derive(Debug)]
pub(super) struct Uses {
    references: u32,
    lineage: u32,
}

impl Uses {
    /// With so many references.
    pub(super) fn new(references: u32) -> Self {
        Self { references, lineage: 0 }
    }

    /// One reference more: its value, or those of its members, are kept. Whether it is the first one.
    pub(super) fn reference(&mut self) -> bool {
        self.references += 1;
        self.references == 1
    }

    /// One reference less; whether it was the last one.
    pub(super) fn unreference(&mut self) -> bool {
        self.references -= 1;
        self.references == 0
    }

    /// Whether somebody needs it now.
    pub(super) fn is_referenced(&self) -> bool {
        self.references > 0
    }

    /// One more of those who could ask for it again: its description is kept.
    pub(super) fn remember(&mut self) {
        self.lineage += 1;
    }

    /// One less of those who could ask for it again.
    pub(super) fn forget(&mut self) {
        self.lineage -= 1;
    }

    /// Whether somebody needs it, or could ask for it again.
    pub(super) fn any(&self) -> bool {
        self.references > 0 || self.lineage > 0
    }
}
