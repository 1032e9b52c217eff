use super::*;

fn node(total: &[u64]) -> PlanNode {
    PlanNode { total: total.to_vec(), free_now: total.to_vec() }
}

fn job(tenant: usize, shapes: &[(&[u64], u32)], nodes: usize) -> PlanJob {
    let shape =
        |(need, count): &(&[u64], u32)| PlanShape { need: need.to_vec(), count: *count, nodes: (0..nodes).collect() };
    PlanJob {
        tenant,
        shapes: shapes.iter().map(shape).collect(),
        held: BTreeMap::new(),
        share_now: 0,
        protected: false,
        used: 0,
        tenant_used: 0,
    }
}

fn slots(plan: &Plan, of: usize) -> u32 {
    plan.iter().filter(|((job, _, _), _)| *job == of).map(|(_, count)| count).sum()
}

#[test]
fn dominant_shares_are_equal_where_jobs_need_different_things() {
    // The example of the paper on dominant resource fairness (NSDI 2011, section 4.1): 9 cpu and 18 GB; jobs of
    // (1 cpu, 4 GB) and of (3 cpu, 1 GB) get 3 and 2 slots.
    let plan = divide(&[node(&[9, 18])], &[job(0, &[(&[1, 4], 99)], 1), job(1, &[(&[3, 1], 99)], 1)], 2);
    assert_eq!((slots(&plan, 0), slots(&plan, 1)), (3, 2));
}

#[test]
fn tenants_share_first_then_their_jobs() {
    let jobs = [job(0, &[(&[1], 99)], 1), job(0, &[(&[1], 99)], 1), job(1, &[(&[1], 99)], 1)];
    let plan = divide(&[node(&[8])], &jobs, 2);
    assert_eq!([0, 1, 2].map(|job| slots(&plan, job)), [2, 2, 4]);
}

#[test]
fn what_one_does_not_want_the_others_get() {
    let plan = divide(&[node(&[8])], &[job(0, &[(&[1], 1)], 1), job(1, &[(&[1], 99)], 1)], 2);
    assert_eq!((slots(&plan, 0), slots(&plan, 1)), (1, 7));
}

#[test]
fn slots_are_spread_over_free_nodes() {
    let plan = divide(&[node(&[4]), node(&[4]), node(&[4])], &[job(0, &[(&[1], 6)], 3)], 1);
    assert_eq!(plan, Plan::from([((0, 0, 0), 2), ((0, 1, 0), 2), ((0, 2, 0), 2)]));
}

#[test]
fn slots_stay_where_they_are() {
    let mut holder = job(0, &[(&[1], 3)], 3);
    holder.held = BTreeMap::from([(1, vec![3])]);
    let mut nodes = [node(&[4]), node(&[4]), node(&[4])];
    nodes[1].free_now = vec![1];
    assert_eq!(divide(&nodes, &[holder], 1), Plan::from([((0, 1, 0), 3)]));
}

#[test]
fn a_slot_without_gpu_keeps_off_the_node_with_gpus() {
    let nodes = [node(&[4, 2]), node(&[4, 0])];
    let plan = divide(&nodes, &[job(0, &[(&[1, 0], 4)], 2), job(1, &[(&[1, 1], 2)], 2)], 2);
    assert_eq!(plan, Plan::from([((0, 1, 0), 4), ((1, 0, 0), 2)]));
}

#[test]
fn shapes_bound_to_a_node_are_placed_before_those_that_have_a_choice() {
    let mut bound = job(0, &[(&[1], 2), (&[1], 2)], 2);
    bound.shapes[1].nodes = vec![0];
    let plan = divide(&[node(&[2]), node(&[2])], &[bound], 1);
    assert_eq!(plan, Plan::from([((0, 0, 1), 2), ((0, 1, 0), 2)]));
}

#[test]
fn the_first_slot_goes_to_who_used_least_unless_a_turn_is_on() {
    let mut jobs = [job(0, &[(&[1], 1)], 1), job(1, &[(&[1], 1)], 1)];
    jobs[0].tenant_used = 10;
    jobs[0].used = 10;
    assert_eq!(slots(&divide(&[node(&[1])], &jobs, 2), 1), 1);
    jobs[0].protected = true;
    assert_eq!(slots(&divide(&[node(&[1])], &jobs, 2), 0), 1);
    // The same within a tenant.
    jobs[1].tenant = 0;
    jobs[1].tenant_used = 10;
    assert_eq!(slots(&divide(&[node(&[1])], &jobs, 1), 0), 1);
    jobs[0].protected = false;
    assert_eq!(slots(&divide(&[node(&[1])], &jobs, 1), 1), 1);
}

#[test]
fn slots_that_need_nothing_are_many_but_not_endless() {
    let plan = divide(&[node(&[1]), node(&[1])], &[job(0, &[(&[0], u32::MAX)], 2)], 1);
    assert_eq!(plan, Plan::from([((0, 0, 0), FREE_SLOTS_MAX), ((0, 1, 0), FREE_SLOTS_MAX)]));
}

#[test]
fn nothing_to_divide_is_no_plan() {
    assert_eq!(divide(&[], &[job(0, &[(&[1], 1)], 0)], 1), Plan::new());
    assert_eq!(divide(&[node(&[1])], &[], 0), Plan::new());
    assert_eq!(divide(&[node(&[1])], &[job(0, &[(&[2], 1)], 1)], 1), Plan::new());
}

#[test]
fn a_slot_is_put_where_there_is_room_now_before_where_there_will_be() {
    let mut nodes = [node(&[4]), node(&[4])];
    nodes[0].free_now = vec![0];
    assert_eq!(divide(&nodes, &[job(0, &[(&[1], 2)], 2)], 1), Plan::from([((0, 1, 0), 2)]));
}

#[test]
fn what_a_job_holds_and_keeps_takes_no_room_from_others() {
    let mut nodes = [node(&[4]), node(&[4])];
    (nodes[0].free_now, nodes[1].free_now) = (vec![2], vec![0]);
    let mut holder = job(0, &[(&[1], 2)], 2);
    holder.held = BTreeMap::from([(0, vec![2])]);
    let plan = divide(&nodes, &[holder, job(1, &[(&[1], 2)], 2)], 2);
    assert_eq!(plan, Plan::from([((0, 0, 0), 2), ((1, 0, 0), 2)]));
}

#[test]
fn of_what_a_job_wants_it_gets_the_same_part_of_each_kind() {
    let plan = divide(&[node(&[6])], &[job(0, &[(&[1], 6), (&[1], 3)], 1)], 1);
    assert_eq!(plan, Plan::from([((0, 0, 0), 4), ((0, 0, 1), 2)]));
}
