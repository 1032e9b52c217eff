//! What is granted beside the region, what gives way for it, and who gets what back.

use super::tests::{CAPACITY, Held, MIB, World, copy, let_go, room, seal, state};
use super::*;
use crate::{
    options::{Beside, Class},
    state::grants::{Claim, Granted, RequestItem},
};

/// A state whose world does nothing but what the disk and the operating system do at once.
fn at_ease(state: &mut State) -> World {
    let mut world = World::default();
    settle(state, &mut world);
    world
}

fn settle(state: &mut State, world: &mut World) {
    world.take(state);
    while world.step(state, 0, false) {}
}

#[test]
fn what_is_granted_is_the_regions_no_more_and_comes_back() {
    let mut state = state(1);
    assert!(state.grant_outside(1));
    assert_eq!(state.budget.used(), MIB, "whole spans");
    assert!(state.grant_outside(MIB - 1), "there is room for that in the same span");
    let mut world = at_ease(&mut state);
    assert_eq!((state.budget.used(), world.holes.len()), (MIB, 1));
    assert!(state.grant_outside(2 * MIB));
    settle(&mut state, &mut world);
    assert_eq!((state.granted_bytes(), state.pinned_bytes(), world.holes.len()), (3 * MIB, 3 * MIB, 3));
    assert!(!state.grant_outside(1) && !state.can_grant_soon(1), "three quarters at most");
    assert_eq!(state.grantable_bytes(), 0);
    state.end_grant(2 * MIB);
    settle(&mut state, &mut world);
    assert_eq!((state.stats().used_bytes, state.surplus_bytes(), world.holes.len()), (MIB, 2 * MIB, 3));
    assert_eq!(state.grantable_bytes(), 2 * MIB, "before anything is taken from the region");
    let ticket = state.request(Class::Arguments, vec![room(3 * MIB)]).unwrap();
    settle(&mut state, &mut world);
    let Claim::Got { granted, class, bytes, .. } = state.claim(ticket) else { panic!("{state:?}") };
    assert_eq!((state.surplus_bytes(), world.holes.len()), (0, 1));
    let_go(&mut state, Held { granted, class, bytes });
}

#[test]
fn what_was_freed_goes_to_the_operating_system_once_before_the_region_has_its_memory_again() {
    let mut state = state(1);
    assert!(state.grant_outside(3 * MIB));
    let mut world = at_ease(&mut state);
    state.end_grant(3 * MIB);
    settle(&mut state, &mut world);
    assert_eq!(world.released, 0, "whoever allocates next may have it");
    for (bytes, released) in [(2 * MIB, 1), (3 * MIB, 1)] {
        let ticket = state.request(Class::Arguments, vec![room(bytes)]).unwrap();
        settle(&mut state, &mut world);
        let Claim::Got { granted, class, bytes, .. } = state.claim(ticket) else { panic!("{state:?}") };
        assert_eq!(world.released, released);
        let_go(&mut state, Held { granted, class, bytes });
    }
    assert!(state.grant_outside(2 * MIB));
    state.end_grant(2 * MIB);
    let ticket = state.request(Class::Arguments, vec![room(3 * MIB)]).unwrap();
    settle(&mut state, &mut world);
    assert!(matches!(state.claim(ticket), Claim::Got { .. }) && world.released == 2);
}

#[test]
fn what_comes_back_is_granted_again_without_a_call_of_the_operating_system() {
    let mut state = state(1);
    assert!(state.grant_outside(3 * MIB));
    let mut world = at_ease(&mut state);
    for again in [3 * MIB, MIB + 1, 1] {
        state.end_grant(state.granted_bytes());
        assert!(state.grant_outside(again));
        state.end_grant(again);
        let ticket = state.request(Class::Arguments, vec![RequestItem::Outside { bytes: again }]).unwrap();
        assert!(matches!(state.claim(ticket), Claim::Got { .. }), "{again}");
        world.take(&mut state);
        assert_eq!((world.moves.len(), world.holes.len()), (0, 3), "{again}");
    }
    state.tell_outside(Beside::Processes, 0, MIB);
    world.take(&mut state);
    assert_eq!((world.moves.len(), state.surplus_bytes()), (0, MIB), "and so is what is told");
}

#[test]
fn surplus_goes_back_as_far_as_the_region_lacks_room_and_before_anything_is_written() {
    let mut state = state(1);
    assert!(state.grant_outside(2 * MIB));
    let mut world = at_ease(&mut state);
    state.end_grant(2 * MIB);
    let mut coming_back = |bytes: u64, id: u128, state: &mut State| {
        let span = state.allocate(bytes, true).unwrap();
        seal(state, copy(id), span, bytes);
        world.take(state);
        assert!(world.writes.is_empty(), "{id}");
        let coming_back = world.moves.len();
        while world.step(state, 0, false) {}
        coming_back
    };
    assert_eq!(coming_back(MIB, 1, &mut state), 0, "a quarter is spare");
    assert_eq!(coming_back(4096, 2, &mut state), 1);
    assert_eq!(coming_back(MIB, 3, &mut state), 1);
    assert_eq!((state.surplus_bytes(), state.stats().used_bytes), (0, 2 * MIB + 4096));
    let span = state.allocate(MIB, true).unwrap();
    seal(&mut state, copy(4), span, MIB);
    world.take(&mut state);
    assert!(!world.writes.is_empty(), "now there is nothing else");
}

#[test]
fn an_output_waits_for_surplus_where_nothing_can_be_written() {
    let mut state = state(0);
    assert!(state.grant_outside(3 * MIB));
    let mut world = at_ease(&mut state);
    assert!(state.allocate(2 * MIB, true).is_none() && !state.will_come_free(2 * MIB, true), "somebody has it");
    state.end_grant(3 * MIB);
    assert!(state.allocate(2 * MIB, true).is_none() && state.will_come_free(2 * MIB, true));
    state.budget.outputs_wait(2 * MIB);
    state.pump();
    assert_eq!((state.returning_bytes(), state.surplus_bytes()), (3 * MIB, 0));
    assert_eq!((state.stats().used_bytes, state.pinned_bytes()), (0, 0), "nobody uses it or holds it");
    assert!(state.allocate(2 * MIB, true).is_none() && state.will_come_free(2 * MIB, true), "it is on its way");
    assert!(state.can_grant_soon(3 * MIB) && !state.grant_outside(3 * MIB), "for a grant, too");
    settle(&mut state, &mut world);
    assert!(state.allocate(2 * MIB, true).is_some());
    state.budget.outputs_waited(2 * MIB);
}

#[test]
fn surplus_that_a_grant_is_about_to_have_is_promised_to_nobody_else() {
    let mut state = state(0);
    assert!(state.grant_outside(2 * MIB));
    let mut world = at_ease(&mut state);
    state.end_grant(2 * MIB);
    let scratch = state.allocate(2 * MIB, true).unwrap();
    let waits = state.grant_waits(3 * MIB);
    assert!(!state.will_come_free(MIB, true));
    state.pump();
    world.take(&mut state);
    assert_eq!((world.moves.len(), state.surplus_bytes()), (0, 2 * MIB));
    state.grant_waited(waits);
    assert!(state.will_come_free(MIB, true), "it was denied");
    state.free(scratch);
}

#[test]
fn surplus_stays_where_what_is_clean_or_being_written_is_room_enough() {
    let mut state = state(1);
    let span = state.allocate(2 * MIB, true).unwrap();
    seal(&mut state, copy(1), span, 2 * MIB);
    assert!(state.grant_outside(MIB));
    let mut world = at_ease(&mut state);
    state.end_grant(MIB);
    state.put_away(&copy(1), false).unwrap();
    let scratch = state.allocate(MIB, true).unwrap();
    // An output waits, and a quarter is to be spare.
    state.budget.outputs_wait(MIB);
    state.pump();
    world.take(&mut state);
    assert_eq!((world.writes.len(), world.moves.len()), (1, 0), "so much is being written");
    settle(&mut state, &mut world);
    state.pump();
    assert_eq!((state.stats().clean_bytes, state.surplus_bytes()), (2 * MIB, MIB), "it is clean");
    assert_eq!(state.grantable_bytes(), 3 * MIB, "what is clean is dropped for a grant");
    state.budget.outputs_wait(1);
    state.pump();
    assert_eq!(state.returning_bytes(), MIB, "a byte more is wanted");
    state.budget.outputs_waited(MIB);
    state.budget.outputs_waited(1);
    state.free(scratch);
}

#[test]
fn where_what_is_free_lies_apart_surplus_comes_back_piece_by_piece() {
    const PIECE: u64 = crate::spill::REQUEST_BYTES;
    let mut state = State::new(64 * MIB, Files::new(Vec::new(), 1), 3);
    assert!(state.grant_outside(3 * PIECE));
    let mut world = at_ease(&mut state);
    state.end_grant(3 * PIECE);
    // Enough is free in sum, and yet an output waits.
    state.budget.outputs_wait(MIB);
    for surplus in [2 * PIECE, 2 * PIECE] {
        state.pump();
        assert_eq!((state.returning_bytes(), state.surplus_bytes()), (PIECE, surplus), "one at a time");
    }
    state.budget.outputs_waited(MIB);
    settle(&mut state, &mut world);
    assert_eq!((state.returning_bytes(), state.surplus_bytes()), (0, 2 * PIECE));
}

#[test]
fn nobody_gives_memory_up_for_a_request_while_surplus_is_coming_back_for_it() {
    let mut state = state(0);
    assert!(state.grant_outside(2 * MIB));
    let mut world = at_ease(&mut state);
    state.end_grant(2 * MIB);
    let ahead = state.request(Class::Prefetch, vec![room(MIB)]).unwrap();
    let ticket = state.request(Class::Arguments, vec![room(3 * MIB)]).unwrap();
    world.take(&mut state);
    assert!(matches!(state.claim(ticket), Claim::Wait) && state.returning_bytes() == 2 * MIB);
    settle(&mut state, &mut world);
    for ticket in [ahead, ticket] {
        let Claim::Got { granted, class, bytes, .. } = state.claim(ticket) else { panic!("{state:?}") };
        let_go(&mut state, Held { granted, class, bytes });
    }
}

#[test]
fn what_is_told_is_written_for_where_nothing_else_is_to_be_written() {
    let mut state = state(1);
    let scratch = state.allocate(3 * MIB, true).unwrap();
    let span = state.allocate(MIB / 2, true).unwrap();
    seal(&mut state, copy(1), span, MIB / 2);
    let mut world = World::default();
    world.take(&mut state);
    assert!(world.writes.is_empty(), "it is too little");
    state.tell_outside(Beside::Processes, 0, MIB);
    world.take(&mut state);
    assert_eq!(world.writes.len(), 1);
    settle(&mut state, &mut world);
    assert_eq!((state.outside_owed(), world.holes.len()), (0, 1));
    state.free(scratch);
}

#[test]
fn what_is_clean_comes_free_together_with_what_can_be_written() {
    let mut state = state(1);
    let spans = [(); 2].map(|()| state.allocate(MIB, true).unwrap());
    let scratch = state.allocate(2 * MIB, true).unwrap();
    seal(&mut state, copy(1), spans[0], MIB);
    state.put_away(&copy(1), false).unwrap();
    let _ = at_ease(&mut state);
    seal(&mut state, copy(2), spans[1], MIB);
    assert_eq!(state.table.clean_bytes(), MIB);
    assert!(state.will_come_free(2 * MIB, true) && !state.will_come_free(2 * MIB + 1, true));
    state.free(scratch);
}

#[test]
fn who_waits_for_surplus_hears_that_there_is_no_memory_behind_it_any_more() {
    let mut state = state(0);
    assert!(state.grant_outside(3 * MIB));
    let mut world = at_ease(&mut state);
    state.end_grant(3 * MIB);
    let ticket = state.request(Class::Arguments, vec![room(3 * MIB)]).unwrap();
    world.take(&mut state);
    assert!(matches!(state.claim(ticket), Claim::Wait) && !world.moves.is_empty());
    while world.step(&mut state, 0, true) {}
    assert_eq!(world.woken, [ticket]);
    assert!(matches!(state.claim(ticket), Claim::Failed(_)), "{state:?}");
}

#[test]
fn surplus_that_a_grant_is_about_to_have_stays_while_the_disk_makes_room_for_the_rest() {
    let mut state = state(1);
    let span = state.allocate(2 * MIB, true).unwrap();
    assert!(state.grant_outside(MIB));
    let mut world = at_ease(&mut state);
    // All else is dirty; the region wants nothing back, since it has a quarter to spare.
    seal(&mut state, copy(1), span, 2 * MIB);
    state.end_grant(MIB);
    world.take(&mut state);
    assert!(world.moves.is_empty() && world.writes.is_empty());
    assert!(!state.grant_outside(3 * MIB) && state.can_grant_soon(3 * MIB));
    let waits = state.grant_waits(3 * MIB);
    assert_eq!(state.budget.waiting_bytes(), 2 * MIB, "one is there");
    let scratch = state.allocate(MIB, true).unwrap();
    state.pump();
    world.take(&mut state);
    assert!(world.moves.is_empty() && !world.writes.is_empty(), "{:?}", world.moves);
    state.free(scratch);
    while world.step(&mut state, 0, false) {}
    assert!(state.grant_outside(3 * MIB));
    state.grant_waited(waits);
    state.end_grant(3 * MIB);
    assert!(state.allocate(MIB, true).is_some());
    settle(&mut state, &mut world);
    assert_eq!(state.surplus_bytes(), 2 * MIB, "nobody waits, and the region has nothing to spare");
}

#[test]
fn what_is_about_to_leave_the_region_is_no_surplus() {
    let mut state = state(1);
    state.tell_outside(Beside::Processes, 0, MIB);
    state.tell_outside(Beside::Processes, MIB, 0);
    assert_eq!((state.surplus_bytes(), state.budget.used()), (0, MIB));
    assert_eq!((state.stats().used_bytes, state.pinned_bytes()), (0, 0), "nobody uses it or holds it");
    assert!(state.grant_outside(MIB), "the operating system has that behind the other one first");
    assert_eq!(state.budget.used(), 2 * MIB);
    let mut world = at_ease(&mut state);
    assert_eq!(state.surplus_bytes(), MIB);
    // What is there already is, while the rest of a grant is on its way.
    assert!(state.grant_outside(2 * MIB));
    state.end_grant(2 * MIB);
    assert_eq!((state.outside_leaving(), state.surplus_bytes()), (MIB, 2 * MIB));
    settle(&mut state, &mut world);
    state.end_grant(MIB);
    assert_eq!(state.surplus_bytes(), 3 * MIB);
}

#[test]
fn what_is_told_and_could_not_be_taken_yet_is_granted_to_nobody() {
    let mut state = state(0);
    let spans = [(); 8].map(|()| state.allocate(MIB / 2, true).unwrap());
    [1, 3, 5].iter().for_each(|nth| state.free(spans[*nth]));
    assert_eq!(state.grantable_bytes(), MIB, "by the bytes that are free");
    state.tell_outside(Beside::Processes, 0, MIB);
    assert_eq!((state.outside_owed(), state.grantable_bytes()), (MIB, 0));
}

#[test]
fn the_rest_of_a_span_can_be_granted_where_no_other_can_be_had() {
    let mut state = state(1);
    assert!(state.grant_outside(1));
    let scratch = state.allocate(3 * MIB, true).unwrap();
    assert_eq!(state.grantable_bytes(), MIB - 1);
    assert!(!state.grant_outside(MIB) && state.grant_outside(MIB - 1));
    state.free(scratch);
}

#[test]
fn what_is_told_comes_before_what_is_asked_for() {
    let mut state = state(1);
    let scratch = state.allocate(2 * MIB, true).unwrap();
    let span = state.allocate(2 * MIB, true).unwrap();
    seal(&mut state, copy(1), span, 2 * MIB);
    assert!(state.can_grant_soon(2 * MIB));
    state.tell_outside(Beside::Processes, 0, MIB);
    assert!(!state.can_grant_soon(2 * MIB) && state.can_grant_soon(MIB));
    state.free(scratch);
}

#[test]
fn surplus_goes_back_to_who_needs_its_memory_in_one_piece() {
    let mut state = state(1);
    let spans = [(); 4].map(|()| state.allocate(MIB, true).unwrap());
    let free = |state: &mut State, nth: usize| state.free(spans[nth]);
    free(&mut state, 1);
    assert!(state.grant_outside(MIB));
    let mut world = at_ease(&mut state);
    assert_eq!(world.holes, [spans[1]]);
    state.end_grant(MIB);
    free(&mut state, 0);
    free(&mut state, 2);
    let ticket = state.request(Class::Arguments, vec![room(2 * MIB)]).unwrap();
    settle(&mut state, &mut world);
    assert!(matches!(state.claim(ticket), Claim::Got { .. }), "{state:?}");
    free(&mut state, 3);
}

#[test]
fn what_nobody_holds_is_spilled_for_a_grant_and_what_is_held_is_not() {
    let mut state = state(1);
    let span = state.allocate(CAPACITY, true).unwrap();
    seal(&mut state, copy(1), span, CAPACITY);
    assert!(!state.grant_outside(MIB));
    assert!(state.can_grant_soon(3 * MIB) && !state.can_grant_soon(3 * MIB + 1), "the disk makes room");
    let mut world = at_ease(&mut state);
    assert!(!world.holes.is_empty() || state.table.clean_bytes() > 0, "written early");
    assert!(state.grant_outside(MIB));
    settle(&mut state, &mut world);
    state.delete(&[copy(1)]);
    let scratch = state.allocate(2 * MIB, true).unwrap();
    assert!(!state.grant_outside(2 * MIB) && !state.can_grant_soon(2 * MIB), "somebody works with it");
    assert_eq!(state.grantable_bytes(), MIB);
    state.free(scratch);
    assert!(state.grant_outside(2 * MIB));
}

#[test]
fn with_nowhere_to_spill_to_a_grant_is_denied_at_once() {
    let mut state = state(0);
    let span = state.allocate(CAPACITY, true).unwrap();
    seal(&mut state, copy(1), span, CAPACITY);
    assert!(!state.grant_outside(MIB) && !state.can_grant_soon(MIB));
}

#[test]
fn more_than_there_will_ever_be_is_refused_with_both_sizes() {
    let state = state(1);
    let error = state.can_ever_grant(CAPACITY).unwrap_err();
    assert!(matches!(error, StoreError::NeverGranted { bytes: CAPACITY, most } if most == 3 * MIB), "{error}");
    assert!(state.can_ever_grant(3 * MIB).is_ok());
    let mut state = state;
    let refused = state.request(Class::Arguments, vec![RequestItem::Outside { bytes: CAPACITY }]);
    assert!(matches!(refused, Err(StoreError::NeverGranted { .. })), "{refused:?}");
    let both = vec![room(2 * MIB), RequestItem::Outside { bytes: 2 * MIB + 1 }];
    let refused = state.request(Class::Arguments, both);
    assert!(matches!(refused, Err(StoreError::TooLarge { need, .. }) if need == 5 * MIB), "{refused:?}");
}

#[test]
fn a_grant_that_is_asked_for_with_arguments_comes_with_them_or_not_at_all() {
    let mut state = state(1);
    let scratch = state.allocate(2 * MIB, true).unwrap();
    let ticket = state.request(Class::Arguments, vec![room(MIB), RequestItem::Outside { bytes: MIB + 1 }]).unwrap();
    assert!(matches!(state.claim(ticket), Claim::Wait));
    assert_eq!((state.granted_bytes(), state.budget.used()), (0, 2 * MIB), "it holds nothing while it waits");
    state.free(scratch);
    let Claim::Got { granted, class, bytes, .. } = state.claim(ticket) else { panic!("{state:?}") };
    assert_eq!(granted[1], Granted::Outside { bytes: MIB + 1 });
    assert_eq!((state.granted_bytes(), state.budget.used()), (MIB + 1, 3 * MIB));
    let_go(&mut state, Held { granted, class, bytes });
    let mut world = at_ease(&mut state);
    let given_up = state.request(Class::Arguments, vec![RequestItem::Outside { bytes: MIB }]).unwrap();
    state.cancel(given_up);
    settle(&mut state, &mut world);
    assert_eq!((state.granted_bytes(), state.stats().used_bytes, state.surplus_bytes()), (0, 0, 2 * MIB));
}

#[test]
fn tables_give_way_to_a_request_and_what_was_granted_does_not() {
    let mut state = state(1);
    state.tell_outside(Beside::Processes, 0, 100 * MIB);
    let mut world = at_ease(&mut state);
    assert_eq!(state.budget.used(), CAPACITY / 4, "a quarter for processes that nobody has asked for");
    assert!(state.grant_outside(MIB));
    settle(&mut state, &mut world);
    assert_eq!((state.budget.used(), state.pinned_bytes()), (2 * MIB, MIB));
    let ticket = state.request(Class::Arguments, vec![room(3 * MIB)]).unwrap();
    settle(&mut state, &mut world);
    assert!(matches!(state.claim(ticket), Claim::Wait), "somebody holds memory, and will let it go");
    state.end_grant(MIB);
    settle(&mut state, &mut world);
    let Claim::Got { granted, class, bytes, .. } = state.claim(ticket) else { panic!("{state:?}") };
    let_go(&mut state, Held { granted, class, bytes });
}

#[test]
fn tables_have_what_grants_leave() {
    let mut state = state(1);
    assert_eq!(state.outside_max(), outside::FREE + CAPACITY / 2);
    assert!(state.grant_outside(3 * MIB));
    assert_eq!(state.outside_max(), outside::FREE + MIB);
    state.tell_outside(Beside::Tables, 0, 100 * MIB);
    let mut world = at_ease(&mut state);
    assert_eq!(state.budget.used(), CAPACITY);
    state.end_grant(3 * MIB);
    settle(&mut state, &mut world);
    assert_eq!(state.stats().used_bytes, CAPACITY / 2);
    assert!(state.grant_outside(MIB));
    state.tell_outside(Beside::Tables, 100 * MIB, 0);
}
