// The same sources are compiled twice: by nvcc for GPUs, and for the emulator of shim/. The
// namespace keeps the two apart in a program that has both.
#pragma once

#ifdef ADDER_CUDA_EMULATED
#define ADDER_CUDA_NS cuda_emulated
#else
#define ADDER_CUDA_NS cuda
#endif
