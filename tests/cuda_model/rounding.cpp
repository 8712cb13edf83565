// Additions rounded down, up or towards zero, in a file of its own: compiled for a rounding mode that changes.

#include "runtime.h"

#include <cfenv>

extern "C" float model_add_directed(float a, float b, int direction) {
    int before = fegetround();
    fesetround(direction < 0 ? FE_DOWNWARD : direction > 0 ? FE_UPWARD : FE_TOWARDZERO);
    volatile float x = a, y = b;
    volatile float sum = x + y;
    fesetround(before);
    return sum;
}
