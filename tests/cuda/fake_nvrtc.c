/* An NVRTC that compiles anything to the same bytes, and adds a byte to the file FAKE_COMPILES each time it does. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char code[] = "machine code of nothing";

int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 9; return 0; }
const char *nvrtcGetErrorString(int status) { return status == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_FAKE"; }
int nvrtcCreateProgram(void **p, const char *source, const char *name, int n, const char *const *h, const char *const *i) {
    (void)name; (void)h; (void)i;
    *p = malloc(1);
    return source && n == 0 ? 0 : 3;
}
int nvrtcCompileProgram(void *p, int n, const char *const *flags) {
    (void)p;
    int rounding = 0;
    for (int i = 0; i < n; i++)
        rounding += !strcmp(flags[i], "-fmad=false") || !strcmp(flags[i], "-ftz=false") || !strcmp(flags[i], "-prec-div=true");
    if (getenv("FAKE_COMPILES")) {
        FILE *compiles = fopen(getenv("FAKE_COMPILES"), "a");
        if (compiles) {
            fputc('.', compiles);
            fclose(compiles);
        }
    }
    return rounding == 3 && !getenv("FAKE_COMPILE_ERROR") ? 0 : 6;
}
int nvrtcDestroyProgram(void **p) { free(*p); *p = NULL; return 0; }
int nvrtcGetProgramLogSize(void *p, size_t *n) { (void)p; *n = 12; return 0; }
int nvrtcGetProgramLog(void *p, char *text) { (void)p; memcpy(text, "fake message", 12); return 0; }
int nvrtcGetCUBINSize(void *p, size_t *n) { (void)p; *n = sizeof code; return 0; }
#ifndef LACK_CUBIN
int nvrtcGetCUBIN(void *p, char *out) { (void)p; memcpy(out, code, sizeof code); return 0; }
#endif
