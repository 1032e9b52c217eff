//! Files that are made from the code, compared with it: the reference of commands, the default configuration, the messages.

use std::{fs, path::Path};

use clap::CommandFactory;
use exobus::cli::Cli;

/// Width of a line of help; fixed, so that the terminal of whoever renews the file does not matter.
const WIDTH: usize = 100;

fn reference() -> String {
    let mut root = Cli::command().term_width(WIDTH);
    root.build();
    let mut text = String::from(
        "# Command line\n\nMade from the help texts; a test keeps it so (`EXOBUS_RENEW=1 cargo test --test it made_files`).\n",
    );
    section(&mut text, "exobus", &mut root);
    let names: Vec<String> = root
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| command.get_name().to_owned())
        .collect();
    for name in names {
        let command = root.find_subcommand_mut(&name).expect("just listed");
        section(&mut text, &format!("exobus {name}"), command);
        let inner: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        for inner in inner {
            let command = command.find_subcommand_mut(&inner).expect("just listed");
            section(&mut text, &format!("exobus {name} {inner}"), command);
        }
    }
    text
}

fn section(text: &mut String, name: &str, command: &mut clap::Command) {
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    text.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.join("\n")));
}

/// Compares a file of the repository with what the code says; makes it when `EXOBUS_RENEW` is set.
#[track_caller]
fn check(file: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("EXOBUS_RENEW").is_some() {
        fs::write(&path, expected).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{file} is old; renew it with EXOBUS_RENEW=1 cargo test --test it made_files");
}

#[test]
fn the_reference_of_commands_is_what_help_says() {
    let expected = reference();
    for code in ["  0  done", "130  interrupted"] {
        assert!(expected.contains(code), "{code}");
    }
    check("docs/cli.md", &expected);
}

#[test]
fn the_default_configuration_is_what_the_table_of_keys_says() {
    check("configs/default.toml", &exobus::config::keys::default_toml());
}

#[test]
fn the_schema_of_the_configuration_is_what_the_table_of_keys_says() {
    check("configs/schema.json", &format!("{:#}\n", exobus::config::schema::schema()));
}

#[test]
fn the_example_of_each_kind_of_job_is_what_its_fields_say() {
    let mut files = Vec::new();
    for (name, kind) in exobus::spec::kinds() {
        let text = format!(
            "# Made from the fields of kinds; a test keeps it so (`EXOBUS_RENEW=1 cargo test --test it made_files`).\n\
             # exobus submit configs/jobs/{name}.toml\n\n{}",
            kind.example_toml()
        );
        check(&format!("configs/jobs/{name}.toml"), &text);
        files.push(format!("{name}.toml"));
        match exobus::spec::Spec::parse(text.as_bytes()).and_then(|spec| spec.plan()) {
            Ok(_) => assert_ne!(*name, "map_batches"),
            // Functions are those of users.
            Err(error) => assert_eq!((*name, error.at.as_deref()), ("map_batches", Some("function")), "{error}"),
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/jobs");
    assert_eq!(crate::support::names(&folder), files, "an example of a kind that is not there");
}

#[test]
fn messages_between_processes_change_only_on_purpose() {
    let samples = exobus::commands::protocols::text(None).unwrap();
    let text = format!(
        "# Messages between processes\n\nMade by `exobus protocols`; a test keeps it so. A line that changes here is a change \
         of what goes over the\nwire: nodes of both versions may meet in one cluster. Who sends what: [subjects.md](subjects.md).\n\n\
         ```text\n{samples}```\n"
    );
    check("docs/protocols.md", &text);
}
