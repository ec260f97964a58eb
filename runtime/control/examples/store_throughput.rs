//! What the embedded control store does in a second: `cargo run --release -p wasmrun-control --example
//! store_throughput [FOLDER]`. The folder should be on the disk that is meant; it is made and left empty.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use wasmrun_control::{ControlStore, Embedded, EmbeddedConfig, Revision};

const TIME: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os()
        .nth(1)
        .map_or("control-throughput".into(), PathBuf::from);
    let store = Embedded::open(&folder, EmbeddedConfig::default()).await?;
    for writers in [1, 8, 64, 256] {
        let rate = puts(&store, writers).await?;
        println!("puts/s, {writers} at a time: {rate:.0}");
    }
    println!("gets/s, 1 at a time: {:.0}", gets(&store, 1).await?);
    println!("gets/s, 64 at a time: {:.0}", gets(&store, 64).await?);
    println!(
        "1,000 watches, each told of 1,000 puts: {:.0} changes/s",
        watches(&store).await?
    );
    let start = Instant::now();
    store.close().await;
    let store = Embedded::open(&folder, EmbeddedConfig::default()).await?;
    println!("close and open: {} ms", start.elapsed().as_millis());
    store.close().await;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

async fn puts(store: &Arc<Embedded>, writers: usize) -> Result<f64, wasmrun_control::Error> {
    let end = Instant::now() + TIME;
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            let mut done = 0_u64;
            while Instant::now() < end {
                let key = format!("bench/{writer}/{}", done % 100);
                store.put(key.into(), vec![7; 200].into(), None).await?;
                done += 1;
            }
            Ok::<_, wasmrun_control::Error>(done)
        });
    }
    sum(tasks).await
}

async fn gets(store: &Arc<Embedded>, readers: usize) -> Result<f64, wasmrun_control::Error> {
    let end = Instant::now() + TIME;
    let mut tasks = JoinSet::new();
    for _ in 0..readers {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            let mut done = 0_u64;
            while Instant::now() < end {
                store
                    .get(format!("bench/0/{}", done % 100).as_bytes())
                    .await?;
                done += 1;
            }
            Ok(done)
        });
    }
    sum(tasks).await
}

async fn sum(
    mut tasks: JoinSet<Result<u64, wasmrun_control::Error>>,
) -> Result<f64, wasmrun_control::Error> {
    let mut all = 0;
    while let Some(done) = tasks.join_next().await {
        all += done.expect("no task panics")?;
    }
    Ok(all as f64 / TIME.as_secs_f64())
}

async fn watches(store: &Arc<Embedded>) -> Result<f64, wasmrun_control::Error> {
    let mut tasks = JoinSet::new();
    for _ in 0..1_000 {
        let mut watch = store.watch(b"watched/", Revision::ZERO).await?;
        tasks.spawn(async move {
            for _ in 0..1_000 {
                watch.next().await?;
            }
            Ok::<_, wasmrun_control::Error>(())
        });
    }
    let start = Instant::now();
    let mut writers = JoinSet::new();
    for writer in 0..64 {
        let store = Arc::clone(store);
        writers.spawn(async move {
            for i in (writer..1_000).step_by(64) {
                let put = store.put(format!("watched/{i}").into(), "".into(), None);
                put.await.expect("the disk has room");
            }
        });
    }
    writers.join_all().await;
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics")?;
    }
    Ok(1_000_000.0 / start.elapsed().as_secs_f64())
}
