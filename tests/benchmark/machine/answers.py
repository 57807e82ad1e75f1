"""What nvidia-smi says on a machine with H100s."""

GPU = "NVIDIA H100 80GB HBM3, 81559, 1980, 560.35.03, 5, 16\n"
NVLINK = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n" + "".join(f"\t Link {n}: 26.562 GB/s\n" for n in range(18))
TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV18\tNV18\tPIX\t0-55\t0
GPU1\tNV18\t X \tNV18\tNODE\t0-55\t0
GPU2\tNV18\tNV18\t X \tSYS\t0-55\t0
NIC0\tPIX\tNODE\tSYS\t X
"""
