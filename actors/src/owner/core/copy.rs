//! What becomes of the value of an object: which copy of it counts, and what becomes of that one. How one
//! value becomes another stands here; that a copy begins to *count*, which means that its object is read there, is decided in `lifetime.rs`
//! (`seal`: the first one stays), of what the program puts in `state.rs` (`put`), of copies that are found again in `replay.rs` (`takes_back`) and `resume.rs`
//! (`found`, `find_again`), and of what the Owner puts back in `replay.rs` (`restore`). All but the last, and what is put for the first time, come to `exists` in `lifetime.rs`.
//!
//! ```text
//!    from          to         when
//!    None, Gone    Wanted     somebody needs the value
//!    Wanted        At         it was made, put back, or found again
//!    None, Gone    At         it was put, put back, or found again with its node
//!    At            At         it was put back elsewhere, from bytes that the Owner knows
//!    At            Gone       its node is gone, which may come back and have it still
//!    At            None       nobody needs it, or it cannot be read
//!    Gone, Wanted  None, ...  the last copy is of no use, should it come back: parts of it are needed that were freed, or nobody needs it
//!    Wanted        None, Gone nobody makes it any more, since everything that it was to be made for is back
//! ```
//!
//! A copy is named by its object and a number that no other copy of the object has ever had ([`CopyNumber`]). So what is said of a
//! copy, however late, is about the one that counts or about none: what a node says that it lacks, has, or could not read; what is to be
//! freed. A copy that does not count is freed when somebody says that it is there.
//!
//! A copy is *spent* when parts of it have been freed, since they were read by who reads them once. Whoever reads other parts may have it;
//! who reads such parts again needs one that is whole ([`OwnerState::take_back_what_was_read`](super::tables::OwnerState)).

use super::placement::NodeIndex;
use crate::ids::CopyNumber;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copy {
    /// There is none, and none is being made: nobody has asked for one, or it was freed.
    None,
    /// One is being made, or is going to be. Its task stops where the last one comes back.
    Wanted { last: Option<CopyNumber>, spent: bool },
    /// This one counts. Of an object without bytes nothing is there, and its node means nothing.
    At { node: NodeIndex, number: CopyNumber, spent: bool },
    /// The last one went with its node, which may come back and have it still.
    Gone { last: CopyNumber, spent: bool },
}

impl Copy {
    /// The copy that counts, and its node.
    pub(super) fn at(self) -> Option<(NodeIndex, CopyNumber)> {
        match self {
            Self::At { node, number, .. } => Some((node, number)),
            Self::None | Self::Wanted { .. } | Self::Gone { .. } => None,
        }
    }

    /// The number of the copy that counts, or of the last one.
    pub(super) fn number(self) -> Option<CopyNumber> {
        match self {
            Self::At { number, .. } => Some(number),
            Self::Gone { last, .. } => Some(last),
            Self::Wanted { last, .. } => last,
            Self::None => None,
        }
    }

    /// Whether the value can be had.
    pub(super) fn is_here(self) -> bool {
        self.at().is_some()
    }

    /// Whether the value is not there, and nothing is done about it.
    pub(super) fn is_missing(self) -> bool {
        matches!(self, Self::None | Self::Gone { .. })
    }

    /// Somebody needs the value: it is to be made, unless it is there.
    pub(super) fn wanted(self) -> Self {
        match self {
            Self::None => Self::Wanted { last: None, spent: false },
            Self::Gone { last, spent } => Self::Wanted { last: Some(last), spent },
            Self::Wanted { .. } | Self::At { .. } => self,
        }
    }

    /// Nobody makes it any more.
    pub(super) fn given_up(self) -> Self {
        match self {
            Self::Wanted { last: None, .. } => Self::None,
            Self::Wanted { last: Some(last), spent } => Self::Gone { last, spent },
            Self::None | Self::At { .. } | Self::Gone { .. } => self,
        }
    }

    /// The copy that counts went with its node.
    pub(super) fn lost_with_its_node(self) -> Self {
        match self {
            Self::At { number, spent, .. } => Self::Gone { last: number, spent },
            Self::None | Self::Wanted { .. } | Self::Gone { .. } => self,
        }
    }

    /// Parts of it are freed, wherever it is.
    pub(super) fn spend(&mut self) {
        match self {
            Self::At { spent, .. } | Self::Wanted { spent, .. } | Self::Gone { spent, .. } => *spent = true,
            Self::None => {}
        }
    }

    /// Whether parts of the copy that counts, or of the last one, were freed.
    pub(super) fn is_spent(self) -> bool {
        match self {
            Self::At { spent, .. } | Self::Wanted { spent, .. } | Self::Gone { spent, .. } => spent,
            Self::None => false,
        }
    }

    /// The last one is of no use, should it come back.
    pub(super) fn without_last(self) -> Self {
        match self {
            Self::Gone { .. } => Self::None,
            Self::Wanted { .. } => Self::Wanted { last: None, spent: false },
            Self::None | Self::At { .. } => self,
        }
    }

    /// Whether this is the last one, which went with its node.
    pub(super) fn was(self, number: CopyNumber) -> bool {
        match self {
            Self::Wanted { last, .. } => last == Some(number),
            Self::Gone { last, .. } => last == number,
            Self::None | Self::At { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: CopyNumber = CopyNumber::FIRST;

    #[test]
    fn the_last_copy_is_known_until_another_one_counts() {
        let here = Copy::At { node: 3, number: ONE, spent: false };
        let gone = here.lost_with_its_node();
        assert!(gone.was(ONE) && gone.wanted().was(ONE) && gone.wanted().given_up().was(ONE));
        assert_eq!((gone.wanted().given_up(), here.at()), (gone, Some((3, ONE))));
        assert_eq!(gone.without_last(), Copy::None);
        assert!(!gone.wanted().without_last().was(ONE) && !here.was(ONE));
        assert_eq!(Copy::None.wanted().given_up(), Copy::None);
    }

    #[test]
    fn a_copy_stays_spent_until_another_one_counts() {
        let mut copy = Copy::At { node: 3, number: ONE, spent: false };
        assert!(!copy.is_spent());
        copy.spend();
        assert!(
            copy.is_spent() && copy.lost_with_its_node().is_spent() && copy.lost_with_its_node().wanted().is_spent()
        );
        assert!(!copy.lost_with_its_node().wanted().without_last().is_spent());
    }

    #[test]
    fn which_copy_counts_takes_eight_bytes() {
        assert_eq!(size_of::<Copy>(), 8);
    }
}
