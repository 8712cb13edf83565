// The Ascend C calls of the vector core of dav-2201, as far as sampling kernels need them, on a strict model: see README.md.
// A test double of the toolkit's header of that name, written from the vendor's public documentation.
#pragma once

#include "model/launch.h"
