"""Libraries that need CUDA, used like any cc_library.

cuda_library: .cu files compiled by nvcc. cuda_host_library: .cc files that call CUDA's C interfaces.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@local_cuda//:defs.bzl", "HAVE_CUDA", "NVCC")

# sm_90a for Hopper's own instructions; compute_90 PTX so that a later GPU's driver can compile the
# rest (PTX of compute_90a runs on sm_90 alone).
_TARGETS = [
    "-gencode=arch=compute_90a,code=sm_90a",
    "-gencode=arch=compute_90,code=compute_90",
]

# A kernel with local memory may make its first launch wait until the device is idle, while other
# ranks' kernels on it wait for the one that is launched: such kernels are not built.
_NO_LOCAL_MEMORY = "-Xptxas=--warn-on-local-memory-usage,-Werror"

_MODES = {
    "dbg": ["-g", "-O1"],
    "fastbuild": ["-O1"],
    "opt": ["-O3", "-DNDEBUG", "-lineinfo", _NO_LOCAL_MEMORY],
}

def _compile(ctx, toolchain, context):
    objects = []
    private_headers = [file for file in ctx.files.srcs if file.extension == "cuh"]
    for source in [file for file in ctx.files.srcs if file.extension == "cu"]:
        out = ctx.actions.declare_file("_objs/%s/%s.pic.o" % (ctx.label.name, source.basename))
        args = ctx.actions.args()
        args.add_all(["-c", source, "-o", out, "-std=c++20", "-ccbin", toolchain.compiler_executable])
        args.add_all(_MODES[ctx.var["COMPILATION_MODE"]] + _TARGETS)
        args.add_all(["-Xcompiler=-fPIC,-Wall,-Wextra", "-Werror", "all-warnings"])
        args.add_all(context.defines, before_each = "-D")

        # nvcc has no -iquote.
        args.add_all([".", ctx.bin_dir.path], before_each = "-I")
        ctx.actions.run(
            executable = NVCC,
            arguments = [args],
            inputs = depset([source] + private_headers, transitive = [context.headers, toolchain.all_files]),
            outputs = [out],
            env = {"PATH": "/usr/bin:/bin", "TMPDIR": "/tmp"},
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s for the GPU" % source.short_path,
        )
        objects.append(out)
    return depset(objects)

def _impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    infos = [dep[CcInfo] for dep in ctx.attr.deps]
    own = cc_common.create_compilation_context(headers = depset(ctx.files.hdrs))
    context = cc_common.merge_cc_infos(cc_infos = [CcInfo(compilation_context = own)] + infos).compilation_context
    objects = _compile(ctx, toolchain, context)
    linking, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = cc_common.configure_features(
            ctx = ctx,
            cc_toolchain = toolchain,
            requested_features = ctx.features,
            unsupported_features = ctx.disabled_features,
        ),
        cc_toolchain = toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(objects = objects, pic_objects = objects),
        linking_contexts = [info.linking_context for info in infos],
        disallow_dynamic_library = True,
    )
    return [
        DefaultInfo(files = objects),
        cc_common.merge_cc_infos(
            direct_cc_infos = [CcInfo(compilation_context = own, linking_context = linking)],
            cc_infos = infos,
        ),
    ]

_cuda_library = rule(
    implementation = _impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu", ".cuh"]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    incompatible_use_toolchain_transition = True,
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def cuda_library(name, srcs, hdrs = [], deps = [], without_cuda = [], **kwargs):
    """A cc_library whose srcs are .cu files.

    Args:
      name: the library.
      srcs: .cu files, and .cuh files that they alone include.
      hdrs: headers, all free of absl, protobuf, gRPC and spdlog.
      deps: cc_library and cuda_library targets.
      without_cuda: .cc files that take the place of srcs on a machine with no CUDA toolkit.
      **kwargs: as for cc_library.
    """
    if HAVE_CUDA:
        _cuda_library(name = name, srcs = srcs, hdrs = hdrs, deps = deps + ["@local_cuda//:cudart_static"], **kwargs)
    else:
        native.cc_library(name = name, srcs = without_cuda, hdrs = hdrs, deps = deps, **kwargs)

def cuda_host_library(name, srcs, hdrs = [], deps = [], without_cuda = [], **kwargs):
    """A cc_library whose srcs call the CUDA runtime or driver API; the host compiler compiles them.

    Args:
      name: the library.
      srcs: .cc files, which may include CUDA headers.
      hdrs: headers. Those that code built without CUDA includes too must not include CUDA headers.
      deps: cc_library, cuda_library and cuda_host_library targets.
      without_cuda: .cc files that take the place of srcs on a machine with no CUDA toolkit.
      **kwargs: as for cc_library.
    """
    if HAVE_CUDA:
        deps = deps + [
            "@local_cuda//:cudart_static",
            "@local_cuda//:host_headers",
        ]
    else:
        srcs = without_cuda

    # Never a shared library of its own, not in tests either: the runtime library is an archive, of
    # which a process must hold one copy.
    native.cc_library(name = name, srcs = srcs, hdrs = hdrs, deps = deps, linkstatic = True, **kwargs)
