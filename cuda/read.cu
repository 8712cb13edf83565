// Reads, and does nothing with what it read: the time that every kernel that looks at its input once takes at least, the
// unit steps are measured in. The fastest number of loads in flight depends on the size, so there are several.

template <unsigned int LOADS>
__device__ __forceinline__ void read(const uint4* from, unsigned long long grains, unsigned int* never) {
    unsigned long long base = (unsigned long long)blockIdx.x * blockDim.x * LOADS + threadIdx.x;
    uint4 v[LOADS];
    for (unsigned int i = 0; i < LOADS; i++) {
        unsigned long long at = base + i * blockDim.x;
        v[i] = __ldg(from + (at < grains ? at : grains - 1));
    }
    unsigned int x = 0, y = 0;
    for (unsigned int i = 0; i < LOADS; i++) x ^= v[i].x ^ v[i].z, y ^= v[i].y ^ v[i].w;
    // What the compiler cannot rule out keeps the loads; no data in use has it happen.
    if (x == 0x5bd1e995 && y == 0x1b873593) *never = x;
}

extern "C" __global__ void __launch_bounds__(256)
    samedraw_read_1(const uint4* from, unsigned long long grains, unsigned int* never) {
    read<1>(from, grains, never);
}

extern "C" __global__ void __launch_bounds__(256)
    samedraw_read_4(const uint4* from, unsigned long long grains, unsigned int* never) {
    read<4>(from, grains, never);
}

extern "C" __global__ void __launch_bounds__(256)
    samedraw_read_8(const uint4* from, unsigned long long grains, unsigned int* never) {
    read<8>(from, grains, never);
}
