"""HTTP to a Kubernetes API server, and what its refusals mean.

    access, credentials            where the API server is, and who we are
    connection, connection_pool    HTTP/1.1 on kept-alive connections
    requests                       one question to its answer; what is asked again
    resources, failures            what can be asked for, and what a refusal means
    api_client                     the verbs
    json_depth                     documents nested too deep
    reviews                        whose a token is, and what they may create

Knows the errors and nothing else of ours.
"""
