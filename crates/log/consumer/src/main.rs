//! Writes a log and counts its events through sqlx.

use condenser::event::{Event, EventKind, Message, Role, Source};
use condenser::Rules;
use condenser_log::{Log, NewSession, Options, RuleSet};
use sqlx::Connection as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("log.db");
    let log = Log::open(&path, Options::default())?;
    let session = log.create_session(NewSession {
        name: "shared".to_owned(),
        rules: RuleSet::of(Rules::Sound),
        meta: Default::default(),
    })?;
    let message = |n: usize| EventKind::Message(Message::text(Role::User, n.to_string()));
    let events: Vec<Event> = (0..3).map(|n| Event::new(n.to_string(), Source::User, message(n))).collect();
    log.append(&session, &events)?;

    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let (count, version): (i64, String) = runtime.block_on(async {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).read_only(true);
        let mut connection = sqlx::SqliteConnection::connect_with(&options).await?;
        sqlx::query_as("SELECT count(*), sqlite_version() FROM event").fetch_one(&mut connection).await
    })?;
    println!("sqlx counts {count} events of 3, on SQLite {version}");
    if count == 3 { Ok(()) } else { Err("the counts differ".into()) }
}
