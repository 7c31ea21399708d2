// Argument structs of basic.hip.
#pragma once

#include <stdint.h>

struct AddArgs { const float *a, *b; float* out; uint32_t n; };
struct RowArgs { const float* x; float* out; uint32_t cols; };
struct NormArgs { const float *x, *weight; float* out; uint32_t cols; float eps; };
struct MatvecArgs { const uint32_t* bits; const uint16_t* scales; const uint32_t* q; const float* q_scales; float* out; uint32_t rows, cols; };
struct ConvertArgs { const uint16_t* halves_in; const float* floats_in; float* floats_out; uint16_t* halves_out; };
struct RotateArgs { const uint32_t* position; const float* frequency; float* out; uint32_t n; };
struct MeetArgs { uint32_t *arrived, *seen; uint64_t* highest; uint32_t* out; };
struct Scaled { const float* x; float factor; };
struct NestedArgs { Scaled first, second; float* out; };
