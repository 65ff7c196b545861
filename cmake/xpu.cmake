# SPDX-License-Identifier: Apache-2.0
# Compiles the XPU's kernels with the XPU's own compiler. Not yet run with one: the
# flags are those that public projects build with (docs/kunlun.md).
#
#   XTDK   the compiler; $CLANG_PATH or -DCLANG_PATH says where it is
#   XRE    the runtime; $XRE_PATH or -DXRE_PATH says where it is

set(CLANG_PATH "$ENV{CLANG_PATH}" CACHE PATH "Where XTDK, the XPU's compiler, is")
set(XRE_PATH "$ENV{XRE_PATH}" CACHE PATH "Where XRE, the XPU's runtime, is")
set(VLLM_KUNLUN_XPU_ARCH "xpu3" CACHE STRING "The XPU's architecture: xpu3 is P800's")

# Nothing but these places: a clang++ from elsewhere cannot compile for the XPU.
find_program(XTDK_COMPILER clang++
  PATHS "${CLANG_PATH}/bin" NO_DEFAULT_PATH)
find_path(XTDK_INCLUDE_DIR xpu/kernel/xtdk.h
  PATHS "${CLANG_PATH}/include" "${XRE_PATH}/include" NO_DEFAULT_PATH)
find_path(XRE_INCLUDE_DIR xpu/runtime.h
  PATHS "${XRE_PATH}/include" NO_DEFAULT_PATH)
find_library(XRE_LIBRARY xpurt
  PATHS "${XRE_PATH}" PATH_SUFFIXES so lib64 lib NO_DEFAULT_PATH)

set(missing "")
if(NOT XTDK_COMPILER)
  list(APPEND missing "bin/clang++ in CLANG_PATH (${CLANG_PATH})")
endif()
if(NOT XTDK_INCLUDE_DIR)
  list(APPEND missing "include/xpu/kernel/xtdk.h in CLANG_PATH (${CLANG_PATH})")
endif()
if(NOT XRE_INCLUDE_DIR)
  list(APPEND missing "include/xpu/runtime.h in XRE_PATH (${XRE_PATH})")
endif()
if(NOT XRE_LIBRARY)
  list(APPEND missing "libxpurt.so in XRE_PATH (${XRE_PATH})")
endif()
if(missing)
  list(JOIN missing ", " missing)
  message(FATAL_ERROR
    "The XPU's toolchain is not complete (no ${missing}): set CLANG_PATH to XTDK and "
    "XRE_PATH to XRE, or leave VLLM_KUNLUN_XPU off.")
endif()
message(STATUS "XTDK ${XTDK_COMPILER}, XRE ${XRE_LIBRARY}")

# add_xpu_library(<target> KERNELS <.xpu>... WRAPPERS <.cpp>...)
#
# A shared library of kernels and of the functions that launch them. XTDK compiles
# both: a wrapper has launches in it, `kernel<<<...>>>(...)`, which is its language.
function(add_xpu_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "KERNELS;WRAPPERS")
  set(common
    --sysroot=/ --target=${CMAKE_SYSTEM_PROCESSOR}-linux-gnu
    --xpu-arch=${VLLM_KUNLUN_XPU_ARCH} -std=c++17 -O2 -fPIC -fno-builtin
    -ffp-contract=off
    -I${CMAKE_SOURCE_DIR}/csrc -I${XTDK_INCLUDE_DIR} -I${XRE_INCLUDE_DIR})
  set(kernel_flags -mllvm -fix-mfence=all -fxpu-launch-return)
  set(wrapper_flags -x xpu --xpu-host-only)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${target}.dir")
  file(MAKE_DIRECTORY "${folder}")

  set(objects "")
  foreach(source IN LISTS arg_KERNELS arg_WRAPPERS)
    get_filename_component(source "${source}" ABSOLUTE)
    get_filename_component(name "${source}" NAME_WE)
    # XTDK names what it makes for the device after the object.
    set(object "${folder}/${name}.o")
    if(object IN_LIST objects)
      message(FATAL_ERROR
        "Two sources of ${target} are called ${name}: rename ${source}.")
    endif()
    if(source MATCHES "\\.xpu$")
      set(flags ${kernel_flags})
    else()
      set(flags ${wrapper_flags})
    endif()
    add_custom_command(
      OUTPUT "${object}"
      COMMAND "${XTDK_COMPILER}" ${common} ${flags} -MMD -MF "${object}.d"
              -c "${source}" -o "${object}"
      DEPENDS "${source}"
      DEPFILE "${object}.d"
      COMMENT "Compiling ${name} for the XPU"
      VERBATIM)
    list(APPEND objects "${object}")
  endforeach()

  add_library(${target} SHARED ${objects})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${target} PRIVATE "${XRE_LIBRARY}")
endfunction()
