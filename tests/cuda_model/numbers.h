// CUDA's arithmetic built-ins: the part of kernel.h that a thread does on its own. Every floating-point operation is one
// IEEE 754 operation; the compiler is told not to fuse them.

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
static inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1u) << (31 - i);
    return y;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned z = 0;
    for (int i = 0; i < 4; i++) {
        unsigned which = selector >> 4 * i & 15u;
        unsigned byte = (unsigned)(both >> 8 * (which & 7)) & 0xffu;
        if (which & 8) byte = byte & 0x80u ? 0xffu : 0;
        z |= byte << 8 * i;
    }
    return z;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }

static inline float __uint_as_float(unsigned x) { return model_bits<float>(x); }
static inline float __int_as_float(int x) { return model_bits<float>(x); }
static inline unsigned __float_as_uint(float x) { return model_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return model_bits<int>(x); }
static inline double __longlong_as_double(long long x) { return model_bits<double>(x); }
static inline long long __double_as_longlong(double x) { return model_bits<long long>(x); }

static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float __fadd_rd(float a, float b) { return model_add_directed(a, b, -1); }
static inline float __fadd_ru(float a, float b) { return model_add_directed(a, b, 1); }
static inline float __fadd_rz(float a, float b) { return model_add_directed(a, b, 0); }
static inline float __fsub_rd(float a, float b) { return model_add_directed(a, -b, -1); }
static inline float __fsub_ru(float a, float b) { return model_add_directed(a, -b, 1); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }

// As cvt does it: towards zero, held within the range, 2^63 (or 0x80000000) for NaN.
static inline unsigned long long __float2ull_rz(float x) {
    if (x != x) return 0x8000000000000000ull;
    if (!(x > 0.0f)) return 0;
    return x >= 0x1p64f ? ~0ull : (unsigned long long)x;
}
static inline unsigned __float2uint_rz(float x) {
    if (x != x || !(x > 0.0f)) return 0;
    return x >= 0x1p32f ? ~0u : (unsigned)x;
}
static inline int __float2int_rz(float x) {
    if (x != x) return 0;
    if (x >= 0x1p31f) return 0x7fffffff;
    return x <= -0x1p31f ? -0x7fffffff - 1 : (int)x;
}
static inline int __float2int_rn(float x) { return __float2int_rz(__builtin_nearbyintf(x)); }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __ull2float_rn(unsigned long long x) { return (float)x; }
static inline double __ull2double_rn(unsigned long long x) { return (double)x; }
static inline double __ll2double_rn(long long x) { return (double)x; }
static inline float __double2float_rn(double x) { return (float)x; }
static inline float rintf(float x) { return __builtin_nearbyintf(x); }
static inline float fabsf(float x) { return __builtin_fabsf(x); }

// A NaN gives way to the other; +0 is above -0.
static inline float fmaxf(float a, float b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == 0.0f && b == 0.0f) return a + b;
    return a > b ? a : b;
}
static inline float fminf(float a, float b) { return -fmaxf(-a, -b); }

#define MODEL_MIN_MAX(result, a_type, b_type) \
    static inline result min(a_type a, b_type b) { return (result)a < (result)b ? (result)a : (result)b; } \
    static inline result max(a_type a, b_type b) { return (result)a > (result)b ? (result)a : (result)b; }
MODEL_MIN_MAX(int, int, int)
MODEL_MIN_MAX(unsigned, unsigned, unsigned)
MODEL_MIN_MAX(unsigned, int, unsigned)
MODEL_MIN_MAX(unsigned, unsigned, int)
MODEL_MIN_MAX(long, long, long)
MODEL_MIN_MAX(unsigned long, unsigned long, unsigned long)
MODEL_MIN_MAX(long long, long long, long long)
MODEL_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
MODEL_MIN_MAX(unsigned long long, long long, unsigned long long)
MODEL_MIN_MAX(unsigned long long, unsigned long long, long long)
static inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
static inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
static inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
static inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline int abs(int x) { return x < 0 ? -x : x; }
