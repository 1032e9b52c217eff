//! Who needs an object or a set: the two counts that keep it.

/// How often something is needed, and by how many it could be asked for again; and a mark, for which the entry of an object has
/// no byte: there are millions of them.
#[derive(Debug)]
pub(super) struct Uses {
    references: u32,
    /// By how many it could be asked for again, below 2^31, and the bit of the mark above that.
    lineage: u32,
}

/// What is known of a thing beside who needs it; once marked it stays so.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(super) enum Mark {
    /// It was made once, though it may be gone.
    Made = 1 << 31,
}

const LINEAGE: u32 = (1 << 31) - 1;

impl Uses {
    /// With so many references.
    pub(super) fn new(references: u32) -> Self {
        Self { references, lineage: 0 }
    }

    /// Marks it.
    pub(super) fn mark(&mut self, mark: Mark) {
        self.lineage |= mark as u32;
    }

    /// Whether it was marked.
    pub(super) fn is_marked(&self, mark: Mark) -> bool {
        self.lineage & mark as u32 != 0
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
        self.references > 0 || self.lineage & LINEAGE > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stay_whatever_is_counted_beside_them_and_are_no_use() {
        let mut uses = Uses::new(1);
        uses.remember();
        assert!(!uses.is_marked(Mark::Made));
        uses.mark(Mark::Made);
        assert!(uses.unreference() && uses.any());
        uses.forget();
        assert!(!uses.any() && uses.is_marked(Mark::Made));
    }
}
