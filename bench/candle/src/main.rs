//! Minimal driver for candle: `run`, `bench`, `tok`.
use anyhow::{bail, Result};
use candle_core::quantized::{gguf_file, tokenizer::TokenizerFromGguf};
use candle_core::{Device, Tensor};
use candle_transformers::models::{quantized_gemma3 as gemma, quantized_llama as llama};
use std::{io::Write, time::Instant};
use tokenizers::Tokenizer;

enum Model { L(llama::ModelWeights), G(gemma::ModelWeights) }
impl Model {
    fn forward(&mut self, ids: &[u32], pos: usize) -> Result<Tensor> {
        let x = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        Ok(match self { Model::L(m) => m.forward(&x, pos)?, Model::G(m) => m.forward(&x, pos)? })
    }
}
fn open(path: &str) -> Result<(gguf_file::Content, std::io::BufReader<std::fs::File>)> {
    let mut f = std::io::BufReader::new(std::fs::File::open(path)?);
    Ok((gguf_file::Content::read(&mut f)?, f))
}
fn load(ct: gguf_file::Content, f: &mut std::io::BufReader<std::fs::File>) -> Result<Model> {
    let arch = ct.metadata["general.architecture"].to_string()?.clone();
    Ok(match arch.as_str() {
        "llama" => Model::L(llama::ModelWeights::from_gguf(ct, f, &Device::Cpu)?),
        "gemma3" => Model::G(gemma::ModelWeights::from_gguf(ct, f, &Device::Cpu)?),
        a => bail!("arch {a}"),
    })
}
fn argmax(l: &Tensor) -> Result<u32> { Ok(l.flatten_all()?.argmax(0)?.to_scalar::<u32>()?) }
fn main() -> Result<()> {
    let a: Vec<String> = std::env::args().collect();
    let get = |k: &str, d: &str| a.iter().position(|x| x == k).map(|i| a[i + 1].clone()).unwrap_or(d.to_string());
    std::env::set_var("RAYON_NUM_THREADS", get("-t", "1"));
    let (path, t0) = (get("-m", ""), Instant::now());
    let ms = |t: Instant| t.elapsed().as_secs_f64() * 1e3;
    let tok = |ct: &gguf_file::Content| -> Result<Tokenizer> {
        match get("--tokenizer", "").as_str() {
            "" => Ok(Tokenizer::from_gguf(ct)?),
            p => Tokenizer::from_file(p).map_err(anyhow::Error::msg),
        }
    };
    match a[1].as_str() {
        "tok" => {
            let (ct, _) = open(&path)?;
            eprintln!("header {:.1} ms", ms(t0));
            let e = tok(&ct)?.encode(get("-p", "hello"), true).map_err(anyhow::Error::msg)?;
            println!("{:?} ({:.1} ms)", e.get_ids(), ms(t0));
        }
        "run" => {
            let (ct, mut f) = open(&path)?;
            let t_h = ms(t0);
            let tk = tok(&ct)?;
            let t_t = ms(t0);
            let mut m = load(ct, &mut f)?;
            let t_l = ms(t0);
            let ids = tk.encode(get("-p", "Hello"), true).map_err(anyhow::Error::msg)?.get_ids().to_vec();
            let n: usize = get("-n", "16").parse()?;
            let (mut pos, mut next) = (ids.len(), argmax(&m.forward(&ids, 0)?)?);
            let t_p = ms(t0);
            let (mut all, mut printed, mut out) = (vec![], 0, std::io::stdout());
            for i in 0..n {
                all.push(next);
                let s = tk.decode(&all, true).map_err(anyhow::Error::msg)?;
                if s.len() > printed { out.write_all(s[printed..].as_bytes())?; out.flush()?; printed = s.len(); }
                if i + 1 < n { next = argmax(&m.forward(&[next], pos)?)?; pos += 1; }
            }
            println!();
            eprintln!("header {t_h:.1} tokenizer {:.1} load {:.1} prompt({}) {:.1} gen {:.1} ms", t_t - t_h, t_l - t_t, ids.len(), t_p - t_l, ms(t0) - t_p);
        }
        "bench" => {
            let (p, n, d, r): (usize, usize, usize, usize) = (get("-p", "512").parse()?, get("-n", "128").parse()?, get("-d", "0").parse()?, get("-r", "3").parse()?);
            let ids: Vec<u32> = (0..p.max(d).max(1)).map(|i| 100 + (i as u32 * 7919) % 40000).collect();
            let (mut pp, mut tg) = (vec![], vec![]);
            for i in 0..r {
                let (ct, mut f) = open(&path)?;
                let mut m = load(ct, &mut f)?;
                if i == 0 { m.forward(&ids[..1], 0)?; }
                if p > 0 { let t = Instant::now(); argmax(&m.forward(&ids[..p], 0)?)?; pp.push(p as f64 * 1e3 / ms(t)); }
                if n > 0 {
                    let mut pos = if d > 0 { let mut q = 0; while q < d { let e = (q + 512).min(d); m.forward(&ids[q..e], q)?; q = e } d } else { 1 };
                    if d == 0 { m.forward(&ids[..1], 0)?; }
                    let (t, mut next) = (Instant::now(), ids[0]);
                    for _ in 0..n { next = argmax(&m.forward(&[next], pos)?)?; pos += 1; }
                    tg.push(n as f64 * 1e3 / ms(t));
                }
            }
            println!("{}", serde_json::json!({"pp": p, "pp_tps": pp, "tg": n, "tg_tps": tg, "depth": d}));
        }
        _ => bail!("run|bench|tok"),
    }
    Ok(())
}
