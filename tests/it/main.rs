//! The command line, run as people run it, and what the workspace promises of itself.

mod bad_input;
mod burst;
mod certificates;
mod commands;
mod config_files;
mod crate_graph;
mod dev;
mod door;
mod enough;
mod explain;
mod fencing;
mod formats;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod isolation;
mod job_commands;
mod job_timeline;
mod jobs;
mod limits;
mod made_files;
mod matrix;
mod memory;
mod nats_doc;
mod objects;
mod output;
mod own_node;
mod page;
mod paths;
#[cfg(feature = "sql")]
mod queries;
mod queries_early;
#[cfg(feature = "sql")]
mod query_output;
mod recovery;
mod resume;
mod shipped;
mod sort;
#[cfg(feature = "sql")]
mod sql_values;
mod stdout;
mod submit;
mod submitters;
mod support;
mod tables;
mod tables_bad_input;
mod tables_group;
mod tables_hive;
mod tables_join;
mod tables_json;
mod tables_look;
mod tables_many_files;
mod tables_matrix;
mod tables_online;
mod tables_read;
mod tables_records;
mod tables_verbs;
mod tenants;
mod tokens;
mod tour;
