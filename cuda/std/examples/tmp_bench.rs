//! t
use cuda_std::emulator::*;
use cuda_std::*;
use std::time::Instant;
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe fn copy(x: Global<f32>, y: Global<f32>, n: usize) {
    unsafe {
        let mut i = thread::index_1d() as usize;
        let stride = (thread::block_dim_x() * thread::grid_dim_x()) as usize;
        while i < n {
            y.write(i, x.read(i));
            i += stride;
        }
    }
}
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe fn copy4(x: Global<f32>, y: Global<f32>, n: usize) {
    unsafe {
        let mut i = thread::index_1d() as usize * 4;
        let stride = (thread::block_dim_x() * thread::grid_dim_x()) as usize * 4;
        while i < n {
            y.write_vector(i, x.read_vector::<4>(i));
            i += stride;
        }
    }
}
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe fn sh(k: usize) {
    unsafe {
        let s = shared::dynamic_shared_mem::<f32>();
        let t = thread::thread_idx_x() as usize;
        for i in 0..k {
            s.write(t, i as f32);
            let _ = std::hint::black_box(s.read(t));
        }
    }
}
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe fn bar(k: usize) {
    unsafe {
        for _ in 0..k {
            thread::sync_threads();
        }
    }
}
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe fn shuf(k: usize) {
    unsafe {
        let mut v = 1u32;
        for _ in 0..k {
            v = warp::shuffle_xor(!0, v, 1);
        }
        std::hint::black_box(v);
    }
}
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe fn atom(k: usize, c: Global<u32>) {
    unsafe {
        for _ in 0..k {
            c.fetch_add_relaxed(0, 1);
        }
    }
}
fn time(name: &str, per: u64, launch: Launch, f: impl Fn()) {
    if std::env::args().nth(1).is_some_and(|o| o != name) {
        return;
    }
    let t = Instant::now();
    let mut r = None;
    let reps = 5;
    for s in 0..reps {
        r = Some(launch.clone().seed(s).run(name, &f).unwrap());
    }
    let e = t.elapsed().as_secs_f64() * 1e9 / reps as f64;
    let r = r.unwrap();
    println!(
        "{name:12} {:8.2} ms  {:7.1} ns/op {:7.1} ns/switch {:7.1} ns/step  switches {} steps {}",
        e * 1e-6,
        e / per as f64,
        e / r.switches as f64,
        e / r.steps as f64,
        r.switches,
        r.steps
    );
}
#[allow(clippy::undocumented_unsafe_blocks)]
fn main() {
    let m = Memory::new();
    let n = 1 << 20;
    let x = m.copy_of(&vec![1f32; n]);
    let y = m.uninit::<f32>(n);
    let c = m.copy_of(&[0u32]);
    time("empty", 8 * 512, Launch::new(8, 512), || {});
    time("copy", 2 * n as u64, Launch::new(8, 512), || unsafe {
        copy(x.view(), y.view(), n)
    });
    time("copy4", 2 * n as u64, Launch::new(8, 512), || unsafe {
        copy4(x.view(), y.view(), n)
    });
    time(
        "shared",
        2 * 100 * 4096,
        Launch::new(8, 512).shared_bytes(2048),
        || unsafe { sh(100) },
    );
    time("barrier", 100 * 4096, Launch::new(8, 512), || unsafe {
        bar(100)
    });
    time("shuffle", 100 * 4096, Launch::new(8, 512), || unsafe {
        shuf(100)
    });
    time("barrier1", 1000 * 512, Launch::new(1, 512), || unsafe {
        bar(1000)
    });
    time("barrier32", 10000 * 32, Launch::new(1, 32), || unsafe {
        bar(10000)
    });
    time("atomic", 100 * 4096, Launch::new(8, 512), || unsafe {
        atom(100, c.view())
    });
}
