//! The view: rebuilt from headers, from events and from JSON text; one append with the next cut point.
#![allow(missing_docs, reason = "the macros of criterion make undocumented items")]

use std::hint::black_box;
use std::sync::Arc;

use condenser::{Event, Header, Names, Rules, View};
use condenser_benches::{Shape, openhands_events};
use condenser_traces::openhands_v1::{Mode, StoredEvent, parse_event};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn events(shape: Shape) -> Vec<Event> {
    openhands_events(shape).into_iter().filter_map(|event| parse_event(event, Mode::Strict).ok()).collect()
}

fn headers(events: &[Event]) -> (Arc<Names>, Vec<Header>) {
    let mut names = Names::default();
    let headers = events.iter().map(|event| names.header(event)).collect();
    (Arc::new(names), headers)
}

fn replay(c: &mut Criterion) {
    let mut group = c.benchmark_group("replay");
    for (name, condense_every) in [("condensed", 100), ("plain", 0)] {
        for n_events in [10_000, 50_000] {
            let events = events(Shape { n_events, condense_every });
            let (names, headers) = headers(&events);
            group.throughput(Throughput::Elements(events.len() as u64));
            for (rules_name, rules) in [("openhands", Rules::OpenHands), ("sound", Rules::Sound)] {
                let id = |from: &str| BenchmarkId::new(format!("{from}/{rules_name}/{name}"), n_events);
                group.bench_function(id("headers"), |b| {
                    b.iter(|| View::replay_headers(Arc::clone(&names), black_box(&headers), rules).len());
                });
                group.bench_function(id("events"), |b| b.iter(|| View::replay(black_box(&events), rules).len()));
            }
        }
    }
    group.finish();
}

fn from_json(c: &mut Criterion) {
    let mut group = c.benchmark_group("json");
    let shape = Shape { n_events: 10_000, condense_every: 100 };
    let lines: Vec<String> = openhands_events(shape).iter().map(ToString::to_string).collect();
    group.throughput(Throughput::Elements(lines.len() as u64));
    group.bench_function("text to view", |b| {
        b.iter(|| {
            let events: Vec<StoredEvent<'_>> = lines.iter().filter_map(|line| StoredEvent::read(line).ok()).collect();
            View::replay(&events, Rules::OpenHands).len()
        });
    });
    group.bench_function("text to whole events to view", |b| {
        b.iter(|| {
            let events: Vec<Event> = lines
                .iter()
                .filter_map(|line| parse_event(serde_json::from_str(line).ok()?, Mode::Lenient).ok())
                .collect();
            View::replay(&events, Rules::OpenHands).len()
        });
    });
    group.finish();
}

fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("append and next cut point");
    for n_events in [1_000, 8_000, 100_000] {
        let events = events(Shape { n_events: n_events + 1_001, condense_every: 0 });
        let (names, headers) = headers(&events);
        for (rules_name, rules) in [("openhands", Rules::OpenHands), ("sound", Rules::Sound)] {
            let view = View::replay_headers(Arc::clone(&names), &headers[..n_events], rules);
            group.throughput(Throughput::Elements(1_000));
            group.bench_function(BenchmarkId::new(rules_name, n_events), |b| {
                b.iter_batched_ref(
                    || {
                        // A clone has no room to grow; its first append copies the list.
                        let mut view = view.clone();
                        view.push_header(&headers[n_events]);
                        view
                    },
                    |view| {
                        let mut found = 0;
                        for header in &headers[n_events + 1..=n_events + 1_000] {
                            view.push_header(header);
                            found += view.next_index(view.len() / 2).unwrap_or(0);
                        }
                        found
                    },
                    BatchSize::LargeInput,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(benches, replay, from_json, append);
criterion_main!(benches);
