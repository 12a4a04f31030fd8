"""@local_cuda: the CUDA toolkit that CUDA_HOME names, or the same targets, empty, where there is none.

PERIGEE_CUDA=0 builds without CUDA on a machine that has it.
"""

_WITH_CUDA = """
package(default_visibility = ["//visibility:public"])

# The folder holds headers that have no extension (nv/target, cccl), so no pattern by extension.
cc_library(name = "headers", hdrs = glob(["include/**"]), includes = ["include"])

# What the C interfaces need, a tenth of :headers: a sandbox is laid out sooner.
cc_library(
    name = "host_headers",
    hdrs = glob(["include/*.h", "include/crt/**"]),
    includes = ["include"],
)

# Not a dep of :headers: nvcc knows its own, and a sandbox need not lay out 2,000 files more.
cc_library(
    name = "cudart_static",
    linkopts = ["-L{lib}", "-l:libcudart_static.a", "-ldl", "-lrt", "-pthread"],
)
"""

_WITHOUT_CUDA = """
package(default_visibility = ["//visibility:public"])

cc_library(name = "headers")

cc_library(name = "host_headers")

cc_library(name = "cudart_static")
"""

def _impl(repository_ctx):
    environ = repository_ctx.os.environ
    home = environ.get("CUDA_HOME", "") or "/usr/local/cuda"
    nvcc = repository_ctx.path(home + "/bin/nvcc")
    if environ.get("PERIGEE_CUDA", "1") == "0" or not nvcc.exists:
        repository_ctx.file("BUILD", _WITHOUT_CUDA)
        repository_ctx.file("defs.bzl", 'HAVE_CUDA = False\n\nNVCC = ""\n')
        return
    repository_ctx.symlink(home + "/include", "include")
    repository_ctx.file("BUILD", _WITH_CUDA.replace("{lib}", home + "/lib64"))
    repository_ctx.file("defs.bzl", 'HAVE_CUDA = True\n\nNVCC = "%s"\n' % nvcc)

cuda_configure = repository_rule(
    implementation = _impl,
    environ = [
        "CUDA_HOME",
        "PERIGEE_CUDA",
    ],
    local = True,
)
